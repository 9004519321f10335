"""The cost model finds planted link constants again, and tells the host's time from the device's."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.cost_model import CopyFit, fit_copies
from analysis.load import load
from tests.running import STANDIN, bench

pytestmark = [
    pytest.mark.standin,
    pytest.mark.skipif(not STANDIN.is_file(), reason="no stand-in GPU beside this checkout"),
]
GRID = """
methods = ["memcpy_loop"]
budget_s = 0.15
[copy]
fragment_bytes = [4096, 16384, 65536, 262144]
fragments = [64, 128, 256]
placements = ["packed"]
"""


def fits(folder: Path, **environment: str) -> dict[str, CopyFit]:
    """The fit of each direction on its own, from one run of the copy bench."""
    (folder / "grid.toml").write_text(GRID, encoding="utf-8")
    path = folder / "out.json"
    chosen = (f"--sweep={folder / 'grid.toml'}", f"--benchmark-json={path}", "-k", "not both")
    done = bench("bench/bench_copy.py", *chosen, standin=True, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    found = fit_copies(load([str(path)]), resamples=0)
    return {key.direction: fit for key, fit in found.items() if key.method == "memcpy_loop"}


@pytest.mark.parametrize(("copy_us", "in_gbps", "out_gbps"), [(40, 0.5, 1.5)])
def test_planted_link_constants_are_found_again(tmp_path: Path, copy_us: int, in_gbps: float, out_gbps: float) -> None:
    planted = {"FAKEGPU_H2D_GBPS": str(in_gbps), "FAKEGPU_D2H_GBPS": str(out_gbps)}
    found = fits(tmp_path, FAKEGPU_COPY_US=str(copy_us), **planted)
    for direction, gbps in (("swap_in", in_gbps), ("swap_out", out_gbps)):
        fit = found[direction]
        assert fit.refusal is None
        assert fit.per_copy_s == pytest.approx(copy_us * 1e-6, rel=0.10)
        assert fit.bytes_s == pytest.approx(gbps * 1e9, rel=0.10)
        assert fit.issue_per_copy_s < 0.2 * fit.per_copy_s


def test_the_hosts_time_is_told_from_the_devices(tmp_path: Path) -> None:
    """Submitting takes 60 us a copy, the device 5 us: small copies wait for the host.

    What a copy costs the device is hidden behind it, so it is not asked for here; above it is the other way round.
    """
    planted = {"FAKEGPU_ISSUE_US": "60", "FAKEGPU_COPY_US": "5", "FAKEGPU_H2D_GBPS": "2", "FAKEGPU_D2H_GBPS": "2"}
    for fit in fits(tmp_path, **planted).values():
        assert fit.refusal is None
        assert fit.issue_per_copy_s == pytest.approx(60e-6, rel=0.10)
        assert fit.issue_seconds(1000) > 900 * 60e-6
