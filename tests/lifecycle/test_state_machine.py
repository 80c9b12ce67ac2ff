"""The whole engine against a model in plain Python, whatever is done in whatever order."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from effort import soak, times
from lifecycle.texts import ALL_CHECKS, ALL_STEPS, TextSteps


class Machine(TextSteps, RuleBasedStateMachine):
    """Takes the steps that Hypothesis chooses."""

    def __init__(self, engine_name: str) -> None:
        RuleBasedStateMachine.__init__(self)
        TextSteps.__init__(self, engine_name)

    begin = initialize()(TextSteps.begin_with_something)


for _name, _options in ALL_STEPS.items():
    _given: dict[str, Any] = {option: st.sampled_from(values) for option, values in _options.items()}
    _step: Any = rule(**_given)
    setattr(Machine, _name, _step(getattr(TextSteps, _name)))
for _name in ALL_CHECKS:
    setattr(Machine, _name, invariant()(getattr(TextSteps, _name)))


@soak
def test_the_lifecycle_is_what_its_model_says(engine_name: str) -> None:
    run_state_machine_as_test(
        cast("type[Machine]", partial(Machine, engine_name)),  # it is called, no more
        settings=settings(
            max_examples=times(4, engine_name),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
