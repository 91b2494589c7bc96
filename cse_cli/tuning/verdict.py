"""What may be said of a gain that a search found."""

from __future__ import annotations

from cse_cli.compare.verdict import shown_p, shown_seeds
from cse_cli.tuning.found import Confirmation, Search


def verdict(search: Search) -> str:
    """Return what is known of the best trial's gain beyond the search itself."""
    best, known = search.best, search.confirmation
    if best is None:
        return "no trial ran to its end"
    if best.own:
        return "nothing that was tried is better than the recipe's own values"
    if known is not None and known.values == best.values:
        return told(known)
    return (
        f"not confirmed yet: the best of {len(search.complete)} trials is optimistic, with the seeds it was chosen by"
    )


def told(confirmation: Confirmation) -> str:
    """Return in one sentence whether the gain is more than the seeds explain."""
    over = confirmation.paired[confirmation.main]
    seeds = f"{len(over.seeds)} fresh seed{'' if len(over.seeds) == 1 else 's'}"
    gain = f"{over.difference:+.2f} {confirmation.main} with {seeds}".replace("-", "−", 1 if over.difference < 0 else 0)
    if confirmation.confirmed:
        return f"confirmed: {gain} ({'the same with each' if over.p is None else shown_p(over.p)})"
    if over.difference <= 0:
        return f"not confirmed: {gain}, so no gain at all"
    if over.p is None:
        return f"not confirmed: {gain}, which has no spread to test with"
    more = (
        ""
        if over.seeds_needed is None
        else f"; to tell a gain of this size takes {shown_seeds(over.seeds_needed)} seeds"
    )
    return f"not confirmed: {gain} may be chance ({shown_p(over.p)}){more}"
