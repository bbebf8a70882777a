"""The devices of a run: --distribution, and a strategy's requirements on the input.

    default       the machine's first GPU, or else its CPU
    one_device    the same, under a strategy that places the variables
    mirrored      all GPUs of the machine (all logical CPUs, if it has none)
    multi_worker  several processes, on one machine or many, named in the environment:
                  see `bert_tf.training.cluster`
    tpu           a TPU, or a slice of one

On JAX, `default` and `one_device` are the first device, and `mirrored` all devices of
the machine.

The mathematics is the same everywhere: see `bert_tf.training.step`.
"""

import contextlib
import functools
import os
import socket
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.base import keras_backend
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError, first_line
from bert_tf.base.shared_options import DeviceOptions
from bert_tf.training import launch

Strategy = Any  # a run's devices: a tf.distribute.Strategy, or a JaxStrategy

_TPU_PORT = 8470  # TensorFlow's, for an address without a port


def create_strategy(options: DeviceOptions | None = None) -> Strategy:
    """Returns the devices. "multi_worker" must be the process's first use of them."""
    options = options or DeviceOptions()
    if options.local_workers > 1 and not launch.is_one():
        raise InputError(
            f"`local_workers={options.local_workers}`: only a command line can start"
            " processes."
        )
    distribution = "tpu" if options.use_tpu else options.distribution
    make = _jax_strategy if keras_backend.is_jax() else _tensorflow_strategy
    strategy = make(distribution, options)
    count, wanted = (
        strategy.num_replicas_in_sync,
        options.value_if_given("num_tpu_cores"),
    )
    if distribution == "tpu" and wanted not in (None, count):
        raise InputError(f"`num_tpu_cores={wanted}`, but the TPU has {count}.")
    return strategy


def has_accelerator() -> bool:
    """Whether the back end has a GPU or a TPU on this machine."""
    if keras_backend.is_jax():
        import jax

        return jax.default_backend() != "cpu"
    return any(map(tf.config.list_physical_devices, ("GPU", "TPU")))


def _cluster() -> Any:
    return addon("multi_worker")


def _tensorflow_strategy(
    distribution: str, options: DeviceOptions
) -> tf.distribute.Strategy:
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    if distribution == "default":
        return tf.distribute.get_strategy()
    if distribution == "one_device":
        return tf.distribute.OneDeviceStrategy(f"/{kind.lower()}:0")
    if distribution == "mirrored":
        devices = tf.config.list_logical_devices(kind)
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    if distribution == "multi_worker":
        found = _cluster().find(_cluster().EVERY_SOURCE)
        if found is None:
            raise InputError(
                "`distribution=multi_worker`: nothing in the environment names the"
                " processes: give `local_workers=2` for two on this machine, start them"
                f" with srun, or set WORKER_HOSTS or {_cluster().TF_CONFIG_EXAMPLE}."
            )
        _cluster().meet(found)
        return tf.distribute.MultiWorkerMirroredStrategy(found.resolver())
    address = options.tpu_name or options.master
    try:
        if address and address.startswith("grpc://"):
            # TensorFlow would wait forever for an address that does not respond.
            for endpoint in address.split(","):
                place = _cluster().host_and_port(
                    endpoint.removeprefix("grpc://"), _TPU_PORT
                )
                socket.create_connection(place, timeout=20.0).close()
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=address, zone=options.tpu_zone, project=options.gcp_project
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise InputError(
            f"`distribution=tpu`: no TPU answers under `tpu_name={address}`:"
            f" {first_line(error)} Give its name, with `tpu_zone` and"
            " `gcp_project` where the metadata lacks them, its grpc://HOST:PORT, or"
            " `local` on a TPU VM and in Colab. Without a TPU, leave `use_tpu` out."
        ) from error


def _jax_strategy(distribution: str, options: DeviceOptions) -> Strategy:
    import jax

    JaxStrategy = addon("jax").JaxStrategy  # noqa: N806

    # TensorFlow reads the records; it must leave the accelerators to JAX.
    with contextlib.suppress(RuntimeError):  # already used by TensorFlow
        tf.config.set_visible_devices([], "GPU")
    if distribution in ("default", "one_device"):
        return JaxStrategy(jax.devices()[:1])
    if distribution == "mirrored":
        return JaxStrategy()
    found = distribution == "multi_worker" and _cluster().find(_cluster().NOT_OF_JAX)
    if found:
        _cluster().meet(found)
        jax.distributed.initialize(
            "{}:{}".format(*next(iter(found.places.values()))),
            num_processes=len(found.places),
            process_id=list(found.places).index(found.own),
            initialization_timeout=_cluster().SECONDS_TO_ANSWER,
        )
        return JaxStrategy()
    if distribution == "multi_worker" or _has_several_tpu_hosts():
        _join_job(distribution)
    if distribution == "multi_worker":
        return JaxStrategy()
    address = options.tpu_name or options.master
    if address and address != "local":
        logging.warning("JAX runs on this machine's TPU: not used: %s.", address)
    try:
        return JaxStrategy(jax.devices("tpu"))
    except RuntimeError as error:
        raise InputError(
            f"`distribution=tpu`: JAX finds no TPU: {first_line(error)}"
            " Run this on a TPU VM or a TPU runtime, with jax[tpu] installed."
        ) from error


# The launchers of a job's processes, and the variables they set, in JAX's order.
_TPU_HOSTS = ("TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES")
_LAUNCHERS = {
    "Open MPI": ("OMPI_MCA_orte_hnp_uri",),
    "Slurm": ("SLURM_JOB_ID",),
    "TPU slice": _TPU_HOSTS,
    "Kubernetes": ("KUBERNETES_SERVICE_HOST",),
}


def _has_several_tpu_hosts() -> bool:
    """Whether the environment describes a slice of several hosts, or several slices."""
    hosts = [os.environ.get(name, "") for name in _TPU_HOSTS]
    return any("," in one for one in hosts) or (
        os.environ.get("MEGASCALE_NUM_SLICES", "1") != "1"
    )


def _join_job(distribution: str) -> None:
    """Joins the other processes of this job, as JAX finds them."""
    import jax

    launchers = [
        name
        for name, variables in _LAUNCHERS.items()
        if not os.environ.keys().isdisjoint(variables)
    ]
    launcher = launchers[0] if launchers else "Google Cloud's metadata"
    try:
        jax.distributed.initialize(initialization_timeout=_cluster().SECONDS_TO_ANSWER)
    except (KeyError, OSError, RuntimeError, ValueError) as error:
        # Without a launcher JAX complains of a missing argument of its own.
        reason = first_line(error) if launchers else "none is in the environment."
        raise InputError(
            f"`distribution={distribution}`: this process could not join a job of"
            f" {' or '.join(launchers or _LAUNCHERS)}: {reason} Start the processes"
            " with srun, mpirun, a Kubernetes job or on all hosts of a TPU slice, or"
            f" give {_cluster().TF_CONFIG_EXAMPLE}."
        ) from error
    logging.info(
        "%s: this is process %d of %d, on %s, with %d of %d devices.",
        launcher,
        jax.process_index(),
        jax.process_count(),
        socket.gethostname(),
        jax.local_device_count(),
        jax.device_count(),
    )


def description(strategy: Strategy) -> str:
    """Describes the devices: "2 GPUs" or "worker 0 of 2, 16 GPUs in all"."""
    count, workers = strategy.num_replicas_in_sync, num_workers(strategy)
    kind = "TPU core" if is_tpu(strategy) else device_kind(strategy)
    devices = f"{count} {kind}{'s' if count > 1 else ''}"
    if keras_backend.is_jax():
        devices += ", JAX"
    if workers == 1:
        return devices
    if keras_backend.is_jax():
        return f"worker {strategy.worker} of {workers}, {devices}, in all"
    resolver = strategy.cluster_resolver
    return f"{resolver.task_type} {resolver.task_id} of {workers}, {devices} in all"


def is_chief(strategy: Strategy) -> bool:
    """Whether this process writes checkpoints and metrics: the first worker."""
    if keras_backend.is_jax():
        return strategy.worker == 0
    resolver = strategy.cluster_resolver
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return True
    chiefs = resolver.cluster_spec().as_dict().get("chief")
    return resolver.task_type == "chief" or (not chiefs and resolver.task_id == 0)


def num_workers(strategy: Strategy) -> int:
    """Returns the number of processes that train together."""
    if keras_backend.is_jax():
        return strategy.num_workers
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 1
    cluster = strategy.cluster_resolver.cluster_spec().as_dict()
    return len(cluster.get("chief", ())) + len(cluster.get("worker", ()))


def is_tpu(strategy: Strategy) -> bool:
    """Whether the steps run on a TPU, which compiles whole steps."""
    return device_kind(strategy) == "TPU"


def device_kind(strategy: Strategy) -> str:
    """Returns the kind of a strategy's devices: "CPU", "GPU" or "TPU"."""
    if keras_backend.is_jax():
        return strategy.device_kind
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return "TPU"
    return "GPU" if tf.config.list_physical_devices("GPU") else "CPU"


def device_name(strategy: Strategy) -> str:
    """Returns the devices' product name: "TPU v4", "NVIDIA H100 80GB HBM3"."""
    if keras_backend.is_jax():
        return strategy.device_name
    if isinstance(strategy, tf.distribute.TPUStrategy):
        # Cloud TPU VMs and Colab give it here, for example v5litepod-8.
        kind = os.environ.get("TPU_ACCELERATOR_TYPE", "").split("-")[0]
        return f"TPU {kind.replace('v5litepod', 'v5e')}"
    for device in tf.config.list_physical_devices("GPU")[:1]:
        return tf.config.experimental.get_device_details(device).get("device_name", "")
    return "CPU"


def check_batch_size(
    strategy: Strategy,
    batch_size: int,
    accumulation_steps: int = 1,
    flag: str = "train_batch_size",
) -> None:
    """Raises InputError if a batch cannot be split evenly."""
    replicas = strategy.num_replicas_in_sync
    if batch_size % (replicas * accumulation_steps):
        raise InputError(
            f"`{flag}={batch_size}` cannot be divided among {replicas}"
            f" device{'s' if replicas > 1 else ''} in {accumulation_steps}"
            f" micro-batch{'es' if accumulation_steps > 1 else ''} each: give a"
            f" multiple of {replicas * accumulation_steps}."
        )


def sum_over_workers(strategy: Strategy, numbers: list[float]) -> np.ndarray:
    """Returns the sums of the workers' numbers; all workers must call this."""
    if keras_backend.is_jax():
        return strategy.sum(numbers)
    if num_workers(strategy) == 1:
        return np.array(numbers, np.float64)
    return _summing(strategy)(tf.constant(numbers, tf.float64)).numpy()


def require_same_step(strategy: Strategy, step: int, folder: str) -> None:
    """Raises InputError if workers have restored different checkpoints."""
    count = num_workers(strategy)
    total, squares = sum_over_workers(strategy, [step, step**2])
    # Computed from sums, so that all workers exit, or none.
    if count * squares != total**2:
        raise InputError(
            f"The workers stand at different steps (this one at {step}):"
            f" `output_dir={folder}` must be one folder that all of them see."
        )


def require_same(strategy: Strategy, settings: Mapping[str, object]) -> None:
    """Raises InputError on all workers if a worker's value differs from the first's.

    All workers must call this, with the same names.
    """
    workers = num_workers(strategy)
    if workers == 1:
        return
    table = np.zeros((workers, len(settings)))
    table[_number(strategy)] = [
        zlib.crc32(repr(value).encode()) % 2**24 for value in settings.values()
    ]
    table = np.round(sum_over_workers(strategy, table.ravel().tolist()))
    table = table.reshape(workers, len(settings))
    for worker, column in np.argwhere(table != table[0])[:1]:
        raise InputError(
            f"worker {worker} has other {list(settings)[column]} than worker 0: give"
            " the same command on every worker."
        )


def _number(strategy: Strategy) -> int:
    """Returns this process's number among the workers."""
    if keras_backend.is_jax():
        return strategy.worker
    resolver = strategy.cluster_resolver
    has_chief = "chief" in resolver.cluster_spec().as_dict()
    return resolver.task_id + (has_chief and resolver.task_type == "worker")


@functools.cache
def _summing(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    # Each replica contributes its share of its worker's numbers.
    replicas = strategy.num_replicas_in_sync // num_workers(strategy)

    @tf.function
    def summed(numbers: tf.Tensor) -> tf.Tensor:
        shares = strategy.run(lambda x: x / replicas, args=(numbers,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, shares, axis=None)

    return summed
