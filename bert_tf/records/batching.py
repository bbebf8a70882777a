"""Examples of a task as records, and batches of sequences of similar length."""

import collections
import copy
import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from bert_tf.base.errors import InputError
from bert_tf.base.finished import digest
from bert_tf.records.spec import RecordSpec

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.records.pipeline import Batch, InputShard

# A batch is padded to one of a few static lengths rather than to the longest possible
# one, so that little is computed on padding and little is compiled.
#
# The plan is a function of (lengths, batch size, seed, number of the batch) alone:
#
# - an epoch draws an order of the examples by (seed, epoch) and goes through the static
#   lengths from the shortest one: the examples that fit are cut into whole batches in
#   that order; the rest joins the next length;
# - so every example occurs once per epoch, and at most one batch of an epoch is not
#   full. The rest of it is padding (`PADDING`) of weight 0;
# - the epoch's batches are then shuffled by the same seed.
#
# Without a seed the examples are ordered by their lengths: for evaluation.
#
# Shapes: N examples, M batches, B batch.

# The number that stands for padding in place of an example.
PADDING = -1

# A length takes about as long to compile as this many batches take to compute: forward
# and backward, or forward alone.
_BATCHES_PER_LENGTH = 4
_BATCHES_PER_LENGTH_FORWARD = 2


class PlannedBatches(NamedTuple):
    """The rows and the lengths of consecutive batches."""

    # [M, B] int64, the numbers of the examples; `PADDING` for none.
    rows: np.ndarray
    # [M] int64, which of the static lengths each batch is padded to.
    buckets: np.ndarray


def static_lengths(
    lengths: Sequence[int] | np.ndarray, num_lengths: int
) -> tuple[int, ...]:
    """Returns the few lengths with the least padding, the longest example's among them.

    With W(n) examples of at most n tokens, the least cost of covering these examples
    with k lengths follows from the least costs with k - 1 (dynamic programming):

        cost(n, k) = min over m < n of cost(m, k - 1) + n (W(n) - W(m))
    """
    if num_lengths == 1:
        return (int(max(lengths)),)
    ends, counts = np.unique(lengths, return_counts=True)
    covered = np.concatenate([[0], np.cumsum(counts)])
    # cost_of[m, n]: the tokens of examples longer than the m-th distinct length and up
    # to the n-th, padded to the n-th.
    cost_of = ends * (covered[None, 1:] - covered[:, None]).astype(np.float64)
    cost_of[np.tril_indices_from(cost_of, k=-1)] = np.inf
    cost = cost_of[0]
    choices = []
    for _ in range(min(num_lengths, len(ends)) - 1):
        totals = np.concatenate([[0.0], cost])[:-1, None] + cost_of[:-1]
        choices.append(totals.argmin(axis=0))
        cost = totals.min(axis=0)
    chosen = [len(ends) - 1]
    for choice in reversed(choices):
        before = choice[chosen[-1]] - 1
        if before < 0:
            break
        chosen.append(before)
    return tuple(int(ends[index]) for index in reversed(chosen))


def batch_lengths(
    lengths: Sequence[int] | np.ndarray,
    num_batches: int,
    num_lengths: int,
    *,
    is_training: bool = False,
) -> tuple[int, ...]:
    """Returns the static lengths of some batches: fewer lengths for fewer batches."""
    least = _BATCHES_PER_LENGTH if is_training else _BATCHES_PER_LENGTH_FORWARD
    return static_lengths(lengths, max(1, min(num_lengths, num_batches // least)))


class LengthPlan:
    """The batches of a data set, for any number of epochs."""

    def __init__(
        self,
        lengths: np.ndarray,
        batch_size: int,
        buckets: Sequence[int],
        seed: int | None,
    ) -> None:
        assert max(lengths) <= buckets[-1], "buckets must cover all examples"
        self.batch_size = batch_size
        self.buckets = tuple(buckets)
        self._bucket_of = np.searchsorted(self.buckets, lengths)
        self._by_length = np.argsort(lengths, kind="stable")
        self._seed = seed

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches that have each example once."""
        return -(-len(self._bucket_of) // self.batch_size)

    def epoch(self, number: int) -> PlannedBatches:
        """Returns the batches of an epoch, in an order of the seed and the number."""
        order, generator = self._by_length, None
        if self._seed is not None:
            generator = np.random.Generator(np.random.PCG64([self._seed, number]))
            order = generator.permutation(len(order))
        bucket_of = self._bucket_of[order]
        left = order[:0]
        batches, buckets = [], []
        for bucket in range(len(self.buckets)):
            ready = np.concatenate([left, order[bucket_of == bucket]])
            whole = len(ready) // self.batch_size * self.batch_size
            batches.append(ready[:whole].reshape(-1, self.batch_size))
            buckets.append(np.full(len(batches[-1]), bucket))
            left = ready[whole:]
        if len(left):
            last = np.full(self.batch_size, PADDING)
            last[: len(left)] = left
            batches.append(last[None])
            buckets.append(self._bucket_of[left].max(keepdims=True))
        rows, of_rows = np.concatenate(batches), np.concatenate(buckets)
        if generator is not None:
            shuffled = generator.permutation(len(rows))
            rows, of_rows = rows[shuffled], of_rows[shuffled]
        return PlannedBatches(rows, of_rows)

    def batches(self, start: int, stop: int) -> PlannedBatches:
        """Returns batches `start` to `stop` - 1, counted over all epochs."""
        first, skipped = divmod(start, self.batches_per_epoch)
        last = max(first + 1, -(-stop // self.batches_per_epoch))
        epochs = [self.epoch(number) for number in range(first, last)]
        rows, buckets = (
            np.concatenate(parts)[skipped : skipped + stop - start]
            for parts in zip(*epochs, strict=True)
        )
        return PlannedBatches(rows, buckets)


# The table keeps only the tokens before the padding, of all records one after another,
# and pads batches to the requested length: MNLI's 400,000 pairs take 200 MB.
#
# A record may have several sequences, one per choice of an example: shapes [N] or
# [B, S] below are then [N, C] or [B, C, S]. The longest one is the record's length.
#
# Shapes: N records, T tokens of all of them, M batches, B batch, S the batch's length,
# C sequences of a record.

# Incremented whenever the same examples would give other records.
_WAY_OF_MAKING = 1

# The feature of batches for evaluation that holds the records' numbers.
ROWS = "rows"
# The feature that is 1 for an example and 0 for a row of padding, [B, 1].
IS_REAL = "is_real_example"


# A feature of a batch, by numpy or TensorFlow: see `ExampleTable.gathered`.
MakeFeature = Callable[[dict[str, Any], Any], Any]


class ExampleTable:
    """The records of some examples, in memory.

    A record has one sequence; or several, the same number in all records (choices); or
    one or more (a text's windows), which count as full if there are several.
    """

    spec: RecordSpec  # the features of a record
    lengths: np.ndarray  # [N] int64, tokens of the records' longest sequences
    full_length: int  # of the largest possible record, in tokens
    mean_length: float  # the tokens of a sequence, on average

    def __init__(
        self,
        blocks: Iterable[Mapping[str, np.ndarray]],
        spec: RecordSpec,
        made_from: Any = None,  # a JSON value
    ) -> None:
        self.spec = spec
        features = [(f.name, f.dtype, f.length) for f in spec.features]
        self._made_from = [_WAY_OF_MAKING, features, made_from]
        self._sequences = [f.name for f in spec.features if f.flag == "max_seq_length"]
        given = iter(blocks)
        some = list(itertools.islice(given, 2))
        if not some:
            raise InputError("There is no example: nothing to train on or to predict.")
        # A lone block, such as a single text, is packed when a part of it is needed.
        self._lone_block: Mapping[str, np.ndarray] | None = None
        if len(some) == 1 and some[0]["input_mask"].ndim == 2:
            self._lone_block = some[0]
        assert all(block.keys() == {f.name for f in spec.features} for block in some)
        if self._lone_block is None:
            lengths, self._columns = self._packed(itertools.chain(some, given))
        else:
            lengths = [_lengths_of(some[0])]
        counts = [one.shape[1] for one in lengths if one.ndim > 1]
        if len({*counts}) > 1:
            lengths = [
                np.pad(one, [(0, 0), (0, max(counts) - one.shape[1])])
                for one in lengths
            ]
        # One length per sequence: [N], or [N, C].
        own = np.concatenate(lengths)
        self.lengths = own.reshape(len(own), -1).max(axis=1)
        self.mean_length = float(own.sum() / own.size)
        self.full_length = width = spec.max_seq_length
        # The tokens of a window where records have one or more of them, else None.
        self._window: int | None = None
        if counts and (own == 0).any():
            numbers = (own > 0).sum(axis=1)
            self.lengths = np.where(numbers > 1, numbers * width, self.lengths)
            self.mean_length = float(own.sum(axis=1).mean())
            self.full_length = width * max(counts)
            self._window = width
        self._own_lengths = own
        self._made: dict[str, MakeFeature] = {}

    def _packed(
        self, blocks: Iterable[Mapping[str, np.ndarray]]
    ) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        """Returns the blocks' lengths, and all blocks' features without padding."""
        lengths = []
        columns: dict[str, list[np.ndarray]] = {f.name: [] for f in self.spec.features}
        for block in blocks:
            lengths.append(_lengths_of(block))
            mask = block["input_mask"]
            is_token = np.arange(mask.shape[-1]) < lengths[-1][..., None]
            assert (mask == is_token).all(), "padding within a sequence"
            is_padding = ~is_token
            for name, value in block.items():
                if name in self._sequences:
                    assert not value[is_padding].any(), f"{name}: padding that is not 0"
                    value = value[is_token]
                columns[name].append(_as_parsed(value))
        return lengths, {name: np.concatenate(some) for name, some in columns.items()}

    @functools.cached_property
    def _columns(self) -> dict[str, np.ndarray]:
        block, self._lone_block = self._lone_block, None
        assert block is not None
        return self._packed([block])[1]

    @functools.cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        own = self._own_lengths
        return np.cumsum(own).reshape(own.shape) - own, own, self._columns

    @property
    def num_segments(self) -> int:
        """One more than the highest segment id."""
        segments = (self._lone_block or self._columns).get("segment_ids", np.zeros(1))
        return int(segments.max()) + 1

    @functools.cached_property
    def made_from(self) -> str:
        """A digest of all that the records were made from."""
        return digest(self._made_from)

    def with_feature(self, name: str, make: MakeFeature) -> "ExampleTable":
        """Returns the records with another feature, computed as batches are read."""
        other = copy.copy(self)
        other._made = {**self._made, name: make}
        return other

    def __len__(self) -> int:
        return len(self.lengths)

    def num_batches(self, batch_size: int) -> int:
        """Returns the number of batches that hold each record once."""
        return -(-len(self) // batch_size)

    def dataset(
        self,
        rows: np.ndarray,
        length: int,
        *,
        shard: "InputShard | None" = None,
    ) -> "tf.data.Dataset":
        """Returns batches of static shape, for training: of all rows, or a worker's."""
        import tensorflow as tf
        import tensorflow.experimental.numpy as tnp

        from bert_tf.records import pipeline

        shard = shard or pipeline.ALL_ROWS
        rows = rows[:, shard.rows(rows.shape[1])]
        rows = rows.reshape(len(rows) * shard.num_replicas, -1)

        def gather(of_batch: "tf.Tensor") -> "Batch":
            of_batch = tf.ensure_shape(of_batch, [rows.shape[1]])
            batch = self.gathered(of_batch, length, tnp)
            # Padding has weight 0, whether or not records have weights.
            is_real = tf.cast(of_batch != PADDING, tf.int32)
            batch.setdefault(IS_REAL, is_real[:, None])
            return batch

        options = tf.data.Options()
        options.autotune.enabled = False
        return (
            tf.data.Dataset.from_tensor_slices(rows.astype(np.int64))
            .map(gather, num_parallel_calls=2, deterministic=True)
            .prefetch(pipeline.PREFETCHED_BATCHES)
            .with_options(options)
        )

    def padded(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns one batch, with the records' numbers as `rows`, [B] int32."""
        # It must not be written to: its arrays may be the caller's own.
        batch = self._lone_batch(rows, length) or self.gathered(rows, length)
        # Not int64: some devices cannot copy such integers.
        return {**batch, ROWS: rows.astype(np.int32)}

    def _lone_batch(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns the batch if it is the lone block as is, else {}."""
        block = self._lone_block
        if block is None or self._made or len(rows) != len(self):
            return {}
        is_wider = length > block["input_mask"].shape[1]
        if is_wider or not np.array_equal(rows, np.arange(len(self))):
            return {}
        return {
            name: _as_parsed(value[:, :length] if name in self._sequences else value)
            for name, value in block.items()
        }

    @functools.cached_property
    def _tensors(self) -> "tuple[tf.Tensor, tf.Tensor, Batch]":
        """The starts, lengths and columns, for a graph."""
        import tensorflow as tf

        with tf.init_scope():
            return tf.nest.map_structure(tf.constant, self._arrays)

    def gathered(self, rows: Any, length: int, xp: Any = np) -> dict[str, Any]:
        """Returns the features of records `rows` [B] int64, with zeros for padding."""
        # Computed by numpy or, in a graph, by TensorFlow's functions of the same names.
        starts, lengths, columns = self._arrays if xp is np else self._tensors
        is_real, numbers = rows != PADDING, xp.maximum(rows, 0)
        place, there = (xp.take(of, numbers, axis=0) for of in (starts, lengths))
        if self._window is not None:
            count, length = -(-length // self._window), min(length, self._window)
            place, there = place[:, :count], there[:, :count]
        offset = xp.arange(length)
        real_sequences = xp.reshape(is_real, [-1, *[1] * (there.ndim - 1)])
        is_token = offset < xp.where(real_sequences, there, 0)[..., None]
        place = xp.where(is_token, place[..., None] + offset, 0)
        batch = {}
        for name, column in columns.items():
            places, is_there = numbers, is_real[:, None]
            if name in self._sequences:
                places, is_there = place, is_token
            values = xp.take(column, places, axis=0)
            batch[name] = xp.where(is_there, values, xp.zeros_like(values))
        return batch | {name: make(batch, xp) for name, make in self._made.items()}

    def batches(
        self, batch_size: int, num_lengths: int | None = None
    ) -> "EvaluationBatches":
        """Returns batches of all records, numbered by `rows`; the last is padded."""
        num_batches = self.num_batches(batch_size)
        if num_lengths is None or num_batches == 1:
            longest = self.full_length if num_lengths is None else max(self.lengths)
            rows = np.full([num_batches, batch_size], PADDING)
            rows.ravel()[: len(self)] = np.arange(len(self))
            return EvaluationBatches(self, rows, np.full(num_batches, longest))
        found = batch_lengths(self.lengths, num_batches, num_lengths)
        plan = LengthPlan(self.lengths, batch_size, found, seed=None).epoch(0)
        return EvaluationBatches(self, plan.rows, np.array(found)[plan.buckets])

    def predicted(
        self,
        name: str,
        shape: Sequence[int],
        outputs: "Predict",
        batch_size: int,
        num_lengths: int | None,
    ) -> np.ndarray:
        """Returns a model's output of that shape for every record, [N, ...] float32."""
        # Padding, whose number is -1, is written to an extra row at the end.
        values = np.zeros([len(self) + 1, *shape], np.float32)
        batches = self.batches(batch_size, num_lengths)
        for batch, found in outputs(batches, len(batches)):
            values[batch[ROWS]] = found[name]
        return values[:-1]


def _lengths_of(block: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the sequences' numbers of tokens, [N] or [N, C]."""
    return block["input_mask"].sum(axis=-1, dtype=np.int64)


def _as_parsed(value: np.ndarray) -> np.ndarray:
    """Returns a value in the type that `RecordSpec.parse` gives it."""
    is_int = value.dtype.kind in "iu"
    return value.astype(np.int32 if is_int else np.float32, copy=False)


class EvaluationBatches:
    """Batches in the order of a plan, for evaluation: made on demand."""

    def __init__(
        self, table: ExampleTable, rows: np.ndarray, lengths: np.ndarray
    ) -> None:
        self.table = table
        self.batch_size = rows.shape[1]
        self._rows = rows
        self._lengths = lengths

    def of_table(self, table: ExampleTable) -> "EvaluationBatches":
        """Returns the same batches with another table's records."""
        return EvaluationBatches(table, self._rows, self._lengths)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches: see `ExampleTable.padded`."""
        for rows, length in zip(self._rows, self._lengths, strict=True):
            yield self.table.padded(rows, int(length))


def endless_rows(
    count: int, batch_size: int, seed: int, position: int, num_batches: int
) -> np.ndarray:
    """Returns batches [M, B] of shuffled records, across the ends of epochs."""
    from bert_tf.records import pipeline

    end = position + num_batches * batch_size
    epochs = range(position // count, -(-end // count))
    orders = [pipeline.shuffled_numbers(count, seed, epoch) for epoch in epochs]
    first = position - epochs.start * count
    rows = np.concatenate(orders)[first : first + num_batches * batch_size]
    return rows.reshape(num_batches, batch_size)


def rows_digest(rows: Iterable[Any]) -> str:
    """Returns a digest that identifies rows from which records are made."""
    sha256 = hashlib.sha256()
    for row in rows:
        sha256.update(json.dumps(row).encode("utf-8"))
    return sha256.hexdigest()


# Predictions as a stream, whose memory does not grow with the number of items: the
# items come in groups that fit in memory. A group's rows are batched by similar length,
# and its results are handed back together, in the rows' order.


Arrays = Mapping[str, np.ndarray]
# (batches, about how many) -> (batch, outputs) as arrays, batch by batch.
Predict = Callable[[Any, int], Iterator[tuple[Arrays, Arrays]]]
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batching:
    """The sizes of batches."""

    batch_size: int = 32  # over all devices
    max_seq_length: int = 128
    num_lengths: int | None = 12  # of batches; None for max_seq_length alone


# Some items, and the table of their rows.
Group = tuple[list[Item], ExampleTable]


class _Batches(Generic[Item]):
    # The batches of all groups, for a `Predict`. Batches of several groups may be
    # fetched before the first group's outputs are there: `groups` has all groups.

    def __init__(
        self,
        first: Group[Item],
        others: Iterator[Group[Item]],
        batching: Batching,
        num_items: int,
    ) -> None:
        self.groups = collections.deque([first])
        self._others = others
        self._batching, self.batch_size = batching, batching.batch_size
        items, table = first
        num_batches = table.num_batches(batching.batch_size)
        self.total = num_batches * max(num_items, len(items)) // len(items)

    @functools.cached_property
    def _lengths(self) -> tuple[int, ...]:
        # The first group determines the lengths, so that later ones compile nothing.
        batching, (_, table) = self._batching, self.groups[0]
        found: tuple[int, ...] = ()
        if batching.num_lengths:
            found = batch_lengths(table.lengths, self.total, batching.num_lengths)
        # A later row may be longer than all of these.
        shorter = (length for length in found if length < batching.max_seq_length)
        return (*shorter, batching.max_seq_length)

    def _of_table(self, table: ExampleTable) -> EvaluationBatches:
        if self.total == 1:  # such as one text: a plan takes as long as its arrays
            return table.batches(self.batch_size, self._batching.num_lengths)
        plan = LengthPlan(table.lengths, self.batch_size, self._lengths, seed=None)
        rows, buckets = plan.epoch(0)
        return EvaluationBatches(table, rows, np.array(self._lengths)[buckets])

    def __iter__(self) -> Iterator[Arrays]:
        yield from self._of_table(self.groups[0][1])
        for group in self._others:
            self.groups.append(group)
            yield from self._of_table(group[1])


def predict_groups(
    groups: Iterator[Group[Item]],
    predict: Predict,
    keep: Callable[[list[Item], int, int, Arrays, Arrays], Result],
    batching: Batching,
    num_items: int,
) -> Iterator[tuple[list[Item], list[Result]]]:
    """Yields each group's items, and the results that `keep` makes of their outputs."""
    first = next(groups, None)
    if first is None:
        return
    batches = _Batches(first, groups, batching, num_items)
    done: dict[int, Result] = {}
    for batch, outputs in predict(batches, batches.total):
        items, table = batches.groups[0]
        for place, row in enumerate(batch[ROWS].tolist()):
            if row != PADDING:
                done[row] = keep(items, row, place, batch, outputs)
        if len(done) == len(table):
            batches.groups.popleft()
            yield items, [done.pop(row) for row in range(len(table))]
