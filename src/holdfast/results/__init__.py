"""What the verbs return, key by key, so that an editor completes it and a type checker checks it.

The same thing has the same name everywhere: ``memory_id``, ``memory_type``, ``created_at``, ``updated_at``, ``score``.
Moments are texts in ISO 8601, UTC. At run time each of these is an ordinary ``dict``.
"""

from holdfast.results.domains import *  # noqa: F403
from holdfast.results.figures import *  # noqa: F403
from holdfast.results.lifecycle import *  # noqa: F403
from holdfast.results.memory import *  # noqa: F403
