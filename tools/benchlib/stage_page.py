"""What docs/performance.md says of profiles by stage."""

from __future__ import annotations

from benchlib.profiles import ProfileSet
from benchlib.stages import STAGES


def stage_table(album: ProfileSet) -> str:
    """Return a table of microseconds of CPU a record, one line a profile.

    Args:
        album: The profiles.
    """
    heads = ("workload", "side", "records", *STAGES, "all", "sampled run", "samples", "load")
    out = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for each in album.profiles:
        figures = (*(each.stages[stage] for stage in STAGES), each.cpu_us, each.sampled_us)
        cells = [each.workload, each.side, f"{each.records:,}", *(f"{figure:.2f}" for figure in figures)]
        out.append(f"| {' | '.join([*cells, f'{each.samples:,}', f'{each.load:.1f}'])} |")
    return "\n".join(out)


def stage_block(album: ProfileSet) -> str:
    """Return the picture, the table and what was measured where.

    Args:
        album: The profiles.
    """
    about, machine = album.about, album.about["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items() if number)
    where = (
        f"{about['at'][:10]}, commit {about['commit']}, `scripts/bench {' '.join(about['arguments'])}`: "
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB; {versions}."
    )
    stages = "\n".join(f"* {stage}: {text}" for stage, text in STAGES.items())
    return f"![stages](bench/stages.svg)\n\n{stage_table(album)}\n\n{where}\n\n{stages}"
