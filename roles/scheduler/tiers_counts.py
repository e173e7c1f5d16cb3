"""What the lower tiers count for the metrics."""

from __future__ import annotations

from dataclasses import dataclass

from stretto.roles.scheduler.counts import Tally


@dataclass(slots=True)
class TierCounts(Tally):
    """Pages, since somebody looked."""

    host_hit_pages: int = 0
    """Promoted for a sequence, from host memory alone."""
    disk_hit_pages: int = 0
    """Promoted for a sequence, for which the disk had to be read."""
    swapped_pages: int = 0
    """Copied to the host because their sequence was retracted."""
    demoted_pages: int = 0
    promoted_pages: int = 0
    host_evicted_pages: int = 0
