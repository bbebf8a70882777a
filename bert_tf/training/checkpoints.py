"""The state of a run in its folder: saved, found again, kept to the last few.

Layout of a checkpoint (`model.ckpt-STEP`, a `tf.train.Checkpoint`):

    weights/NAME     the model's weights by the original's variable names
    optimizer/PATH   the optimizer's moments and its count of steps
    random/N         the states of the model's random generators (dropout), in order
    progress/step    the number of training steps done
    progress/records the number of training records read: the input's position

Everything that decides the next step is in it, so a run that goes on is the same run.
"""

import keras
import tensorflow as tf
from absl import logging

from bert_tf.errors import InputError
from bert_tf.modeling.names import weights_by_name

CHECKPOINT_NAME = "model.ckpt"


class RunCheckpoints:
    """Saves and restores one run.

    Args:
        folder: the run's output_dir.
        model: the model that is trained.
        optimizer: its optimizer, built; None to restore the weights alone.
        max_to_keep: how many checkpoints to keep; 0 for all.

    Attributes:
        step: number of training steps done.
        records: number of training records read.
    """

    def __init__(
        self,
        folder: str,
        model: keras.Model,
        optimizer: keras.Optimizer | None = None,
        *,
        max_to_keep: int = 5,
    ) -> None:
        self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._records = tf.Variable(0, dtype=tf.int64, trainable=False)
        parts = {
            "weights": {
                name: variable.value
                for name, variable in weights_by_name(model).items()
            },
            "progress": {"step": self._step, "records": self._records},
        }
        if optimizer is not None:
            parts["optimizer"] = {
                variable.path: variable.value for variable in optimizer.variables
            }
            parts["random"] = {
                f"{number:04d}": variable.value
                for number, variable in enumerate(_random_states(model))
            }
        self._resumes = optimizer is not None
        self._checkpoint = tf.train.Checkpoint(**parts)
        self._manager = tf.train.CheckpointManager(
            self._checkpoint,
            folder,
            max_to_keep=max_to_keep or None,
            checkpoint_name=CHECKPOINT_NAME,
        )

    @property
    def step(self) -> int:
        """The number of training steps done."""
        return int(self._step.numpy())

    @property
    def records(self) -> int:
        """The number of training records read."""
        return int(self._records.numpy())

    @property
    def latest(self) -> str | None:
        """The newest checkpoint's prefix, if there is one."""
        return self._manager.latest_checkpoint

    def restore(self) -> bool:
        """Restores the newest checkpoint, if there is one, and says so.

        Raises:
            InputError: it does not fit the model or the optimizer.
        """
        if self.latest is None:
            return False
        try:
            status = self._checkpoint.restore(self.latest)
            status.assert_existing_objects_matched()
        except (AssertionError, ValueError) as error:
            raise InputError(
                f"{self.latest} is of another model or optimizer than this run's:"
                f" {str(error).splitlines()[0]} Give another --output_dir."
            ) from error
        except (tf.errors.OpError, IndexError) as error:
            raise InputError(
                f"{self.latest} is damaged or missing: {str(error).splitlines()[0]}"
                f" Name an older one in {self._manager.directory}/checkpoint, or give"
                " another --output_dir."
            ) from error
        if not self._resumes:
            status.expect_partial()
        logging.info("Restored %s (step %d).", self.latest, self.step)
        return True

    def save(self, step: int, records: int) -> str:
        """Writes a checkpoint and returns its prefix."""
        self._step.assign(step)
        self._records.assign(records)
        return self._manager.save(checkpoint_number=step)


def _random_states(model: keras.Model) -> list[keras.Variable]:
    """The variables of the model's random generators, in the order of its layers."""
    return [
        variable
        for variable in model.non_trainable_variables
        if variable.path.endswith("seed_generator_state")
    ]
