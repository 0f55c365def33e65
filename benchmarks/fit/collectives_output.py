"""Error tables and the YAML document of the fitted constants of collectives."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from forerun.simulator.costs.collectives.constants import LinkConstants, Table

_BANDS = ((0, 2**20, "< 1 MiB"), (2**20, 2**26, "1 to 64 MiB"), (2**26, 2**50, ">= 64 MiB"))


def error_table(rows: pd.DataFrame, predicted_s: NDArray[np.float64], by: list[str]) -> pd.DataFrame:
    """Rows, median and 90th percentile of the relative error, and median signed error, per group."""
    signed = predicted_s / rows.seconds.to_numpy(float) - 1.0
    band = pd.cut(rows.full_bytes, [low for low, _, _ in _BANDS] + [_BANDS[-1][1]], right=False)
    band = band.cat.rename_categories([name for _, _, name in _BANDS])
    frame = rows.assign(error=np.abs(signed), signed=signed, band=band)
    groups = frame.groupby(by, observed=True)
    return pd.DataFrame(
        {
            "rows": groups.size(),
            "median": groups.error.median(),
            "p90": groups.error.quantile(0.9),
            "bias": groups.signed.median(),
        }
    )


def document(known: Table, rows: pd.DataFrame, predicted_s: NDArray[np.float64], settings: dict[str, str]) -> str:
    """The YAML text: one block per kind with its source, its constants and its errors by size band."""
    errors = error_table(rows.assign(key=rows.setting.map(settings)), predicted_s, ["key", "band"])
    links = {key: _block(row, errors) for key, row in known.links.items()}
    kinds = {kind: list(keys) for kind, keys in known.kinds.items()}
    head = (
        "# Constants of collectives per kind of link. Written by `python -m benchmarks.fit.collectives DIR`; fields\n"
        "# are explained in simulator/costs/collectives/constants.py, triples are LL, LL128, Simple.\n"
    )
    body = {"kinds": kinds, "borrowed": dict(known.borrowed), "links": links}
    return head + yaml.safe_dump(body, sort_keys=False, width=118, default_flow_style=None)


def _block(row: LinkConstants, errors: pd.DataFrame) -> dict[str, object]:
    block: dict[str, object] = {}
    for field in fields(row):
        value = getattr(row, field.name)
        if field.name == "key" or value == field.default:
            continue
        if isinstance(value, tuple):
            block[field.name] = [_short(item) for item in value]
        elif isinstance(value, str | bool):
            block[field.name] = value
        else:
            block[field.name] = {k: _short(v) for k, v in value.items()} if hasattr(value, "items") else _short(value)
    if row.key in errors.index.get_level_values(0):
        own = errors.loc[row.key]
        block["fit"] = {
            str(band): {"rows": int(r.rows), "median_error": _short(r["median"])} for band, r in own.iterrows()
        }
    return block


def _short(value: float | str) -> float | int | str:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def write(path: Path, text: str) -> None:
    """Write the document."""
    path.write_text(text, encoding="utf-8")
