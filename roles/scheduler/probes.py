"""What of the scheduler's core is worth a span in a recording."""

from __future__ import annotations

from stretto.roles import messages as m
from stretto.roles.scheduler.batch import Batch
from stretto.roles.scheduler.core import Core
from stretto.roles.trace import span


def _planned(plan: m.Plan | None, core: Core) -> tuple[int, int] | None:
    """Step and rows of what was planned; nothing where nothing was."""
    if plan is None:
        return None
    return plan.step, len(plan.chunks) // 12 + len(plan.decodes) // 4


def _digested(_: None, core: Core, result: m.Result) -> tuple[int, int]:
    return result.step, len(result.tokens) // 4


PROBES = (
    span(Core, "next_plan", "plan", ("step", "rows"), _planned),
    span(Core, "advance", "digest", ("step", "tokens"), _digested),
    span(Batch, "place", "match"),
)
