"""The devices of a run on JAX, and what is put on them.

The devices share the rows of each batch; every one has all weights. A step is one
computation on global arrays, which XLA divides among the devices and processes. So its
result, masks of dropout included, is that of one device, to rounding.
"""

import collections
import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Arrays = Mapping[str, Any]  # name -> [B, ...]

# How many batches are on the devices before they are needed.
_BATCHES_AHEAD = 2


class JaxStrategy:
    """Some devices, of this process or of several, whose number is `worker`."""

    def __init__(self, devices: list[jax.Device] | None = None) -> None:
        devices = devices or jax.devices()
        self._devices = devices
        mesh = Mesh(np.array(devices), ("batch",))
        self.replicated = NamedSharding(mesh, PartitionSpec())
        self._by_row = NamedSharding(mesh, PartitionSpec("batch"))
        self._by_row_of_part = NamedSharding(mesh, PartitionSpec(None, "batch"))
        self.num_replicas_in_sync = len(devices)
        self.num_workers = len({device.process_index for device in devices})
        self.worker = jax.process_index()
        self.is_tpu = devices[0].platform == "tpu"
        self.is_cpu = devices[0].platform == "cpu"

    def scope(self) -> contextlib.AbstractContextManager:
        """Where models and optimizers are built."""
        return jax.default_device(self._local_devices[0])

    @property
    def description(self) -> str:
        """The devices, for the log: "2 GPUs" or "worker 0 of 2, 16 GPUs in all"."""
        count = self.num_replicas_in_sync
        kind = "TPU core" if self.is_tpu else self._devices[0].platform.upper()
        described = f"{count} {kind}{'s' if count > 1 else ''}, JAX"
        if self.num_workers == 1:
            return described
        return f"worker {self.worker} of {self.num_workers}, {described}, in all"

    @property
    def _local_devices(self) -> list[jax.Device]:
        return [one for one in self._devices if one.process_index == self.worker]

    def everywhere(self, values: list[Any]) -> list[jax.Array]:
        """Each array on every device, from this process's copy of it."""
        if self.num_workers == 1:
            return jax.device_put(values, self.replicated)
        return [
            jax.make_array_from_single_device_arrays(
                value.shape,
                self.replicated,
                [jax.device_put(value, device) for device in self._local_devices],
            )
            for value in values
        ]

    def local(self, values: Any) -> Any:
        """This process's copies of arrays that are on every device."""
        if self.num_workers == 1:
            return values
        return jax.tree.map(lambda value: value.addressable_data(0), values)

    def whole(self, batch: Arrays) -> dict[str, jax.Array]:
        """A batch of which every process has all rows; by row if they can be shared."""
        arrays = {name: _array(value) for name, value in batch.items()}
        rows = len(next(iter(arrays.values())))
        is_short = rows % self.num_replicas_in_sync
        sharding = self.replicated if is_short else self._by_row
        return {
            name: jax.make_array_from_callback(value.shape, sharding, value.__getitem__)
            for name, value in arrays.items()
        }

    def parts(self, batch: Arrays, count: int) -> tuple[dict[str, jax.Array], Any]:
        """This process's rows of a batch, in so many micro-batches.

        Returns the batch [B, ...], or if there are several [count, B / count, ...], and
        each row's number in the whole batch, or None.
        """
        arrays = {name: _array(value) for name, value in batch.items()}
        put = jax.make_array_from_process_local_data
        if count == 1:
            return {name: put(self._by_row, x) for name, x in arrays.items()}, None
        rows = len(next(iter(arrays.values())))
        numbers = np.arange(rows, dtype=np.int32) + rows * self.worker
        *values, examples = (
            put(self._by_row_of_part, value.reshape(count, -1, *value.shape[1:]))
            for value in (*arrays.values(), numbers)
        )
        return dict(zip(arrays, values, strict=True)), examples

    def sum(self, numbers: list[float]) -> np.ndarray:
        """The sums of each process's numbers, exact as float64; all must call it."""
        here = np.array(numbers, np.float64)
        if self.num_workers == 1:
            return here
        from jax.experimental import multihost_utils

        # JAX has no float64 unless it is told to, but it has bits.
        every = multihost_utils.process_allgather(here.view(np.uint32))
        return np.asarray(every).view(np.float64).sum(axis=0)


class DeviceBatches:
    """Batches of this process's rows, put on the devices ahead of time."""

    def __init__(self, strategy: JaxStrategy, batches: Iterator[Arrays]) -> None:
        self._strategy = strategy
        self._batches = batches
        self._ahead: collections.deque[tuple[dict[str, jax.Array], Any]] = (
            collections.deque()
        )

    def __iter__(self) -> "DeviceBatches":
        return self

    def __next__(self) -> dict[str, jax.Array]:
        return self.take(1)[0]

    def take(self, num_parts: int) -> tuple[dict[str, jax.Array], Any]:
        """The next batch: see `JaxStrategy.parts`."""
        self.fill(num_parts, 1)
        if not self._ahead:
            raise StopIteration
        return self._ahead.popleft()

    def fill(self, num_parts: int, count: int = _BATCHES_AHEAD) -> float:
        """Puts batches on the devices; returns how long it waited for them."""
        began = time.perf_counter()
        while len(self._ahead) < count:
            batch = next(self._batches, None)
            if batch is None:
                break
            self._ahead.append(self._strategy.parts(batch, num_parts))
        return time.perf_counter() - began


def _array(value: Any) -> np.ndarray:
    """A tensor of the host as an array; JAX has no int64 unless it is told to."""
    array = np.asarray(value)
    return array.astype(np.int32) if array.dtype == np.int64 else array
