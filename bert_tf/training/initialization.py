"""The weights that a model starts with: of its own folder, or of another model."""

import keras
import tensorflow as tf

from bert_tf.conversion.adapter_files import load_adapter
from bert_tf.conversion.loading import load_weights
from bert_tf.errors import InputError
from bert_tf.training.checkpoints import RunCheckpoints
from bert_tf.training.step import computing_in
from bert_tf.training.task import Task


def restore_or_initialize(
    task: Task,
    folder: str,
    init_checkpoint: str | None,
    precision: str = "float32",
    strategy: tf.distribute.Strategy | None = None,
    *,
    init_adapter: str | None = None,
) -> tuple[keras.Model, int]:
    """A task's model for evaluation: the folder's checkpoint, or else the given one."""
    strategy = strategy or tf.distribute.get_strategy()
    with strategy.scope(), computing_in(precision):
        model = task.build_model()
    checkpoints = RunCheckpoints(folder, model)
    if checkpoints.restore():
        return model, checkpoints.step
    if not init_checkpoint:
        raise InputError(
            f"Nothing to evaluate: --output_dir={folder} has no checkpoint and there is"
            " no --init_checkpoint. Train first (--do_train)."
        )
    missing = [
        name
        for name in initialize(model, init_checkpoint, init_adapter)
        if not name.startswith(task.unmeasured)
    ]
    if missing:
        raise InputError(
            f"--init_checkpoint={init_checkpoint} is not trained for this task: it has"
            f" no {missing[0]}. Train first (--do_train)."
        )
    return model, 0


def initialize(
    model: keras.Model,
    init_checkpoint: str,
    init_adapter: str | None,
    init_head: bool = True,
) -> list[str]:
    """Gives a model its first weights."""
    # An adapter has a head of its own.
    has_head = init_head and not init_adapter
    missing = load_weights(model, init_checkpoint, init_head=has_head)
    if not init_adapter:
        return missing
    loaded = load_adapter(model, init_adapter, init_head=init_head)
    return [name for name in missing if name not in loaded]
