"""Which devices to run on."""

import tensorflow as tf
from absl import flags, logging

from bert_tf.errors import InputError


def create_strategy(
    *,
    use_tpu: bool = False,
    tpu_name: str | None = None,
    tpu_zone: str | None = None,
    gcp_project: str | None = None,
    master: str | None = None,
    num_tpu_cores: int | None = None,
) -> tf.distribute.Strategy:
    """The machine's default device, or a TPU.

    Args:
        use_tpu: run on a TPU.
        tpu_name: the TPU's name, its grpc:// address, or "local".
        tpu_zone: its zone, if it is not in the metadata.
        gcp_project: its project, if it is not in the metadata.
        master: the TPU's address, where there is no name.
        num_tpu_cores: the number of cores that the TPU must have.

    Raises:
        InputError: no TPU answers under that name, or it has another number of cores.
    """
    if not use_tpu:
        gpus = tf.config.list_logical_devices("GPU")
        logging.info("Running on %s.", gpus[0].name if gpus else "the CPU")
        return tf.distribute.get_strategy()
    address = tpu_name or master
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=address, zone=tpu_zone, project=gcp_project
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    except (ValueError, tf.errors.OpError) as error:
        raise InputError(
            f"--use_tpu: no TPU answers under --tpu_name={address}:"
            f" {str(error).splitlines()[0]}"
        ) from error
    if num_tpu_cores is not None and strategy.num_replicas_in_sync != num_tpu_cores:
        raise InputError(
            f"--num_tpu_cores={num_tpu_cores}, but the TPU has"
            f" {strategy.num_replicas_in_sync}."
        )
    logging.info("Running on %d TPU cores.", strategy.num_replicas_in_sync)
    return strategy


def strategy_from_flags(flag_values: flags.FlagValues) -> tf.distribute.Strategy:
    """The strategy that a script's device flags ask for; see `create_strategy`."""
    cores = flag_values["num_tpu_cores"]
    return create_strategy(
        use_tpu=flag_values.use_tpu,
        tpu_name=flag_values.tpu_name,
        tpu_zone=flag_values.tpu_zone,
        gcp_project=flag_values.gcp_project,
        master=flag_values.master,
        num_tpu_cores=cores.value if cores.present else None,
    )
