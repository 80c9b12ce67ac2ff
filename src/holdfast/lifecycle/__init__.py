"""How long memories live: rules, sweeps, holds, the recycle bin, schedules and the audit chain."""
