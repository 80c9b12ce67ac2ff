"""The service around the API: what every request passes through, health and metrics, and the processes.

``layers`` wraps the API in what each module here adds: request ids and logs, headers, who may call without a key,
limits, probes. ``server`` runs that, and ``supervisor`` keeps the process beside it running that runs the schedule.
"""
