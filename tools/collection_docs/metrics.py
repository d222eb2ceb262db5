# SPDX-License-Identifier: Apache-2.0
"""Page of the operator's metrics, made from the metrics themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from karmada_operator.metrics import Metrics

from collection_docs.sources import row

PAGE = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Generated from operator/karmada_operator/metrics.py by `make reference`. Change that, not this page. -->

# Metrics of the operator

Each pod of the [operator](../guides/operator.md#monitor) shows these at `/metrics` on port 8080, in the text format of
Prometheus. Who does not lead has `karmada_operator_leader` 0, and tells of no object. Labels `kind`, `namespace` and
`name` are those of an object. It has figures from the first time on that the operator that leads tells its status, and
none when it is gone.

{tables}

A counter begins at 0 with its process. Of a histogram there are `_bucket`, `_sum` and `_count`; the upper bounds of its
buckets, in seconds: {buckets}.
"""
#: Prefix of the name of a metric → heading.
_PARTS = {
    "karmada_operator_": "The operator",
    "karmada_instance_": "Control planes",
    "karmada_backup_": "Backups",
}


def page() -> str:
    """Every metric by its subject: name, type, labels, and what it says."""
    found = {name: each for each in vars(Metrics()).values() if (name := _name(each))}
    parts = []
    for prefix, heading in _PARTS.items():
        rows = [_row(name, each) for name, each in found.items() if name.startswith(prefix)]
        parts.append(
            "\n".join([f"## {heading}\n", "| metric | type | labels | what it says |", "|---|---|---|---|", *rows])
        )
    left = [name for name in found if not name.startswith(tuple(_PARTS))]
    if left:
        raise ValueError(f"metrics without a heading: {', '.join(left)}")
    return PAGE.format(tables="\n\n".join(parts), buckets=_buckets(found.values()))


def _name(metric: Any) -> str:
    """Name of a metric as it is shown; empty for what is none."""
    if not hasattr(metric, "describe"):
        return ""
    described = next(iter(metric.describe()))
    return f"{described.name}_total" if described.type == "counter" else str(described.name)


def _row(name: str, metric: Any) -> str:
    described = next(iter(metric.describe()))
    # The library tells names of labels by their values only, and a new process has none.
    labels = ", ".join(f"`{each}`" for each in metric._labelnames)
    return row(f"`{name}`", described.type, labels or "none", described.documentation)


def _buckets(metrics: Iterable[Any]) -> str:
    """Upper bounds of the buckets of histograms, each once."""
    bounds = {tuple(each._upper_bounds) for each in metrics if hasattr(each, "_upper_bounds")}
    return "; or ".join(", ".join(f"{bound:g}" for bound in each if bound != float("inf")) for each in sorted(bounds))
