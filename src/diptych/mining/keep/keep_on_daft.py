"""The `Steps` of the global step as Daft expressions on columns of hashes, by `min` and joins.

There is no sort: any_value after one has no reliable order among equal rows.
"""

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.mining.keep.keep import U64, Steps, Ties, masks
from diptych.runtime.extras import requires_extra


def steps() -> Steps:
    return Steps(near_pairs, common, best)


def _frame(**columns: NDArray[Any]) -> Any:
    with requires_extra("--engine daft", "mine"):
        import daft
    signed = {name: one.view(np.int64) if one.dtype == np.uint64 else one for name, one in columns.items()}
    return daft.from_pydict({**signed, "row": np.arange(len(next(iter(columns.values()))))})


def near_pairs(hashes: U64, bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Join hashes that agree on a band, then count the bits in which they differ."""
    from daft import DataType, Series, col, func

    @func.batch(return_dtype=DataType.bool())
    def close(a: Series, b: Series) -> Any:
        differ = np.bitwise_count((a.to_arrow().to_numpy() ^ b.to_arrow().to_numpy()).view(np.uint64))
        return Series.from_numpy(differ <= bits)

    if not len(hashes):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    bands = [_frame(hash=hashes, band=(hashes & mask)) for mask in masks(bits)]
    met = [
        one.join(one.select(col("row").alias("other"), col("hash").alias("near"), col("band")), on="band")
        .where(col("row") < col("other"))
        .where(close(col("hash"), col("near")))
        .select("row", "other")
        for one in bands
    ]
    pairs = reduce(lambda a, b: a.concat(b), met).distinct().to_pydict()
    return np.array(pairs["row"], np.int64), np.array(pairs["other"], np.int64)


def common(text: U64, cluster: NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    from daft import col

    pairs = _frame(text=text, cluster=cluster)
    pictures = pairs.select("text", "cluster").distinct().groupby("text").agg(col("cluster").count().alias("pictures"))
    many: Any = col("pictures")
    rows = pairs.join(pictures.where(many > most), on="text", how="semi").select("row").to_pydict()["row"]
    mask = np.zeros(len(text), bool)
    mask[rows] = True
    return mask


def best(ties: Ties) -> NDArray[np.intp]:
    """The first row of each image: keep rows with the least value of each column in turn, the primary key first."""
    from daft import col

    names = [f"tie{number}" for number in range(len(ties) - 1)]
    left = _frame(picture=ties[-1], **{name: _ordered(one) for name, one in zip(names, ties[:-1], strict=True)})
    for name in [*reversed(names), "row"]:
        least = left.groupby("picture").agg(col(name).min().alias("least"))
        left = left.join(least, on="picture").where(col(name) == col("least")).exclude("least")
    return np.sort(np.array(left.select("row").to_pydict()["row"], np.intp))


def _ordered(column: NDArray[Any]) -> NDArray[Any]:
    """Unsigned numbers as signed ones of the same order."""
    return (column ^ np.uint64(1 << 63)).view(np.int64) if column.dtype == np.uint64 else column
