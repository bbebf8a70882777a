"""Training losses that need a second forward pass or another model.

    SMART    Jiang et al. 2019, "SMART: Robust and efficient fine-tuning ...":
             smoothness (2.1) and the proximal point with momentum (2.2)
    Mixout   Lee et al. 2019, "Mixout: Effective regularization to finetune ..."
    a teacher, of DistilBERT (Sanh et al. 2019) and TinyBERT (Jiao et al. 2019)

A `Regularized` model has the model's outputs and further ones, and an objective with
their losses. The step treats it like any other model; only the original model is saved,
evaluated and exported.

Shapes: B batch, S sequence, H hidden, A heads.
"""

import collections
import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import keras
import numpy as np
from keras import ops

from bert_tf.addons.methods.loss_options import BALANCED, LossOptions
from bert_tf.addons.methods.loss_terms import (
    divergence,
    of_tokens,
    smoothed,
    soft_targets,
    with_class_weights,
)
from bert_tf.base import keras_backend
from bert_tf.base.config import REGRESSION, SINGLE_LABEL
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.loading import load_model
from bert_tf.conversion.source import Source, open_source
from bert_tf.modeling.fused import (
    dropout_pass,
    is_later_micro_batch,
    normal,
    random_bits,
    seed_of_rows,
    step_seed,
)
from bert_tf.modeling.layers import Observer, observing, truncated_normal
from bert_tf.modeling.objectives import Loss, Objective, Outputs, Records
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training.task import Task

T = TypeVar("T", bound=Task)

# The further outputs' names, or their beginnings.
_NOISY, _AVERAGE, _TEACHER = "noisy/", "average/", "teacher/"
_COSINE, _HIDDEN, _ATTENTION = "cosine", "hidden", "attention"

# The kernels that Mixout mixes.
_PRETRAINED = re.compile(r"/(layer_\d+|pooler)/.*kernel$")

# Weights, and the values to compute with instead.
Values = Sequence[tuple[keras.Variable, Any]]


def _refuse_other_teacher(
    teacher: Source,
    heads: Sequence[str],
    vocabulary: Vocabulary | None,
    labels: Sequence[str] | None = None,
) -> None:
    """Raises InputError unless the teacher can teach a model with these heads."""
    path, own = teacher.path, teacher.tokenizer.vocabulary
    there = names.heads_of(teacher.weights)
    for head in heads:
        if head not in there:
            raise InputError(
                f"`teacher_checkpoint={path}`: it has no {head} head to learn from, but"
                f" {', '.join(there) or 'none'}. Train it on the same task first."
            )
    if own is not None and vocabulary is not None and own.sha256 != vocabulary.sha256:
        raise InputError(
            f"`teacher_checkpoint={path}`: its vocabulary differs from this model's."
            " Give a teacher with the same vocabulary."
        )
    if labels and teacher.labels and tuple(labels) != tuple(teacher.labels):
        raise InputError(
            f"`teacher_checkpoint={path}` predicts {', '.join(teacher.labels)}; this"
            f" model {', '.join(labels)}. Give `labels` in its order."
        )


def regularized(
    task: T,
    losses: LossOptions,
    *,
    heads: Sequence[str],
    vocabulary: Vocabulary | None,
    labels: Sequence[str] | None = None,
    class_weights: Sequence[float] | None = None,
    **of_teacher: Any,
) -> T:
    """Returns the task with these losses; `of_teacher` goes to its teacher."""
    make_teacher = None
    if losses.teacher_checkpoint:
        source = open_source(losses.teacher_checkpoint)
        _refuse_other_teacher(source, heads, vocabulary, labels)
        make_teacher = functools.partial(load_model, source, heads[0], **of_teacher)
    in_training = functools.partial(
        Regularized,
        objective=task.objective,
        options=losses,
        class_weights=class_weights,
        make_teacher=make_teacher,
    )
    return dataclasses.replace(task, in_training=in_training)


class Regularized(keras.layers.Layer):
    """A model in training, and its objective there."""

    def __init__(
        self,
        model: keras.Model,
        objective: Objective,
        options: LossOptions,
        *,
        class_weights: Sequence[float] | None = None,
        make_teacher: Callable[[], keras.Model] | None = None,
    ) -> None:
        super().__init__(dtype="float32", autocast=False, name="regularized")
        self.model = model
        self.options = options
        # The variables that a run keeps in addition to the model, by name.
        self.state: dict[str, keras.Variable] = {}
        self._seeds = None
        if options.mixout or options.smart_weight:
            self._seeds = keras.random.SeedGenerator()
            self.state["seeds"] = self._seeds.state
        trained = model.trainable_variables
        kernels = [weight for weight in trained if _PRETRAINED.search(weight.path)]
        self._initial = self._copied("initial", kernels if options.mixout else ())
        is_averaged = options.smart_proximal_weight > 0.0
        self._average = self._copied("average", trained if is_averaged else ())
        # The steps with the first momentum.
        self._early = None
        if options.smart_final_momentum is not None:
            self._early = self.add_weight(
                name="early", initializer="zeros", trainable=False
            )
            self.state["early"] = self._early
        self.teacher: Any = make_teacher() if make_teacher else None
        self._projection: Any = None
        if self.teacher is not None:
            self.teacher.trainable = False
            self._fit_to_teacher()
        self.objective = self._objective(objective, class_weights)
        self._noisy_losses = [
            loss.of_scores(divergence, "", _NOISY) for loss in objective.losses.values()
        ]
        self.built = True

    def begin(self, num_steps: int) -> None:
        """Copies the model's weights as the initial ones of a run of these steps."""
        for weight, copy in (*self._initial(), *self._average()):
            copy.assign(ops.copy(weight))  # JAX would share the memory
        if self._early is not None:
            self._early.assign(num_steps // 10)

    def call(self, batch: Records, training: bool = True) -> dict[str, Any]:
        """Returns the outputs in training."""
        del training
        options, passed = self.options, _Passed()
        seed = step_seed(self._seeds) if self._seeds else None
        mixed = self._mixed(seed) if options.mixout else ()
        outputs = dict(self._run(batch, mixed, observer=passed))
        further: dict[str, Any] = {}
        if options.smart_weight:
            noise = self._noise(batch, outputs, mixed, passed["embeddings"][0], seed)
            noisy = self._run(batch, mixed, number=1, observer=_adding(noise))
            further |= _named(_NOISY, noisy)
        if options.smart_proximal_weight:
            further |= _named(_AVERAGE, self._outputs_of_average(batch))
        if self.teacher is not None:
            further |= self._taught(batch, passed)
        return outputs | further

    def _run(
        self,
        batch: Records,
        values: Values = (),
        *,
        number: int = 0,
        observer: Observer,
        frozen: bool = False,
        training: bool = True,
    ) -> Mapping[str, Any]:
        """Returns the outputs of one of a step's passes; `frozen`: without gradient."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(observing(observer))
            stack.enter_context(dropout_pass(None if self.options.mixout else number))
            if values or frozen:
                # All of them: the scope hides the values that JAX computes with.
                now = {id(weight): ops.copy(weight) for weight in self.model.variables}
                now |= {id(weight): value for weight, value in values}
                if frozen:
                    now = {key: ops.stop_gradient(value) for key, value in now.items()}
                mapping = [(weight, now[id(weight)]) for weight in self.model.variables]
                stack.enter_context(keras.StatelessScope(state_mapping=mapping))
            return self.model(batch, training=training)

    # Mixout: with the share p of the neurons at their initial weights u,
    #
    #     (m u + (1 - m) w - p u) / (1 - p)        m is 1 with probability p, else 0
    #
    # so that the expectation is w. A neuron's weights are those that it is multiplied
    # by, a row of a dense layer's kernel [in, out]; the head has no initial weights
    # worth staying near, and is left alone.

    def _mixed(self, seed: Any) -> Values:
        share = self.options.mixout
        # The noise has the seed itself.
        key = ops.cast(seed[0] + 1, "uint32"), ops.cast(seed[1], "uint32")
        values = []
        for number, (weight, initial) in enumerate(self._initial()):
            row = ops.cast(ops.arange(weight.shape[0], dtype="int32"), "uint32")
            bits = random_bits(key, (ops.full_like(row, number), row))
            is_initial = bits < ops.convert_to_tensor(np.uint32(round(share * 2**32)))
            there = ops.copy(initial)
            mixture = ops.where(is_initial[:, None], there, ops.copy(weight))
            values.append((weight, (mixture - share * there) / (1.0 - share)))
        return values

    # SMART's smoothness: the divergence between the outputs and those of embeddings
    # with noise, which is normal at first, and then climbs
    #
    #     noise <- clip(noise + step g / max |g|, -epsilon, epsilon)
    #
    # with g the divergence's gradient, and the maximum over a sequence (the paper's
    # Algorithm 1, lines 5 to 9). As in the authors' code, the pass with noise has its
    # own masks of dropout.

    def _noise(
        self, batch: Records, outputs: Outputs, mixed: Values, like: Any, seed: Any
    ) -> Any:
        options = self.options
        like = ops.stop_gradient(like)
        rows = ops.reshape(like, (-1, like.shape[-1]))
        noise = options.smart_noise * normal(seed_of_rows(seed), rows)
        noise = ops.reshape(noise, ops.shape(like))
        clean = {name: ops.stop_gradient(value) for name, value in outputs.items()}

        def total(noise: Any) -> Any:
            noisy = self._run(
                batch, mixed, number=1, observer=_adding(noise), frozen=True
            )
            both = clean | _named(_NOISY, noisy)
            return sum(loss(batch, both).total for loss in self._noisy_losses)

        for _ in range(options.smart_steps):
            gradient = keras_backend.gradient(total, noise)
            largest = ops.max(ops.abs(gradient), axis=(1, 2), keepdims=True)
            step = options.smart_step_size * ops.divide_no_nan(gradient, largest)
            most = options.smart_epsilon
            noise = ops.stop_gradient(ops.clip(noise + step, -most, most))
        return noise

    # SMART's proximal term: the divergence from the outputs of the weights' average
    #
    #     average_t = momentum average_(t-1) + (1 - momentum) weights_t
    #
    # In the paper the momentum is 0.99 in the first tenth of the steps, then 0.999.

    def _outputs_of_average(self, batch: Records) -> Outputs:
        momentum: Any = self.options.smart_momentum
        if not is_later_micro_batch():
            if self._early is not None:
                final = self.options.smart_final_momentum
                momentum = ops.where(self._early > 0.0, momentum, final)
                self._early.assign(self._early - 1.0)
            for weight, average in self._average():
                average.assign(momentum * average + (1.0 - momentum) * weight)
        values = [(weight, ops.copy(average)) for weight, average in self._average()]
        return self._run(batch, values, observer=_Passed(), frozen=True, training=False)

    # A teacher: the divergence from its scores, and the differences between the two
    # models' tensors. The teacher has k times as many layers as the student: its layer
    # k i is compared with layer i, its embeddings with the embeddings.

    def _fit_to_teacher(self) -> None:
        """Checks that both models have the parts to compare; makes the projection."""
        options = self.options
        ours, theirs = self.model.bert_config, self.teacher.bert_config
        window_pooling = getattr(self.model, "window_pooling", None)
        if getattr(self.teacher, "window_pooling", None) != window_pooling:
            raise InputError(
                "`teacher_checkpoint`: both models must read a text's windows at once"
                " (`window_pooling=attention`), or neither."
            )
        for name, logits in self.model.output.items():
            there, here = self.teacher.output.get(name, logits).shape, logits.shape
            if there != here:
                raise InputError(
                    f"`teacher_checkpoint`: its {name} are of {there[-1]} classes, this"
                    f" model's of {here[-1]}. Give a teacher of the same task."
                )
        for name, field, may_be_multiple in (
            ("distill_cosine", "hidden_size", False),
            ("distill_attention", "num_attention_heads", False),
            ("distill_attention", "num_hidden_layers", True),
            ("distill_hidden", "num_hidden_layers", True),
        ):
            here, there = getattr(ours, field), getattr(theirs, field)
            fits = there % here == 0 if may_be_multiple else there == here
            if getattr(options, name) and not fits:
                wanted = "a multiple of" if may_be_multiple else "the same as"
                raise InputError(
                    f"`{name}`: the teacher's {field} must be {wanted} this model's,"
                    f" {here}. It is {there}."
                )
        if options.distill_hidden and ours.hidden_size != theirs.hidden_size:
            self._projection = self.add_weight(
                name="projection",
                shape=(ours.hidden_size, theirs.hidden_size),
                initializer=truncated_normal(ours.initializer_range),
            )
            self.state["projection"] = self._projection

    def _taught(self, batch: Records, passed: "_Passed") -> dict[str, Any]:
        options, there = self.options, _Passed()
        with observing(there):
            outputs = self.teacher(batch, training=False)
        found = _named(_TEACHER, outputs)
        if options.distill_cosine:
            ours, theirs = (_float32(one["layer"][-1]) for one in (passed, there))
            cosine = ops.sum(ops.normalize(ours) * ops.normalize(theirs), axis=-1)
            found[_COSINE] = 1.0 - cosine
        if options.distill_hidden:
            pairs = [(passed["embeddings"][0], there["embeddings"][0])]
            pairs += _paired(passed["layer"], there["layer"])
            found[_HIDDEN] = sum(self._hidden_difference(*pair) for pair in pairs)
        if options.distill_attention:
            pairs = _paired(passed["scores"], there["scores"])
            found[_ATTENTION] = sum(_difference_of_scores(*pair) for pair in pairs)
        return found

    def _hidden_difference(self, ours: Any, theirs: Any) -> Any:
        """Returns the mean of (S W - T)^2 over a token's numbers: [B, S]."""
        ours, theirs = _float32(ours), _float32(theirs)
        if self._projection is not None:
            ours = ops.matmul(ours, self._projection)
        return ops.mean(ops.square(ours - theirs), axis=-1)

    def _objective(
        self, objective: Objective, class_weights: Sequence[float] | None
    ) -> Objective:
        """Returns the objective: the weighted sum of the losses."""
        options = self.options
        losses: dict[str, Loss] = {}
        metrics: dict[str, Any] = dict(objective.metrics)

        def add(name: str, loss: Loss, factor: float) -> None:
            if factor:
                losses[name] = loss.scaled(factor)

        for name, loss in objective.losses.items():
            own = loss
            if options.label_smoothing:
                own = smoothed(own, options.label_smoothing)
            if class_weights is not None:
                own = with_class_weights(own, class_weights)
            add(name, own, options.distill_labels)
            if not options.distill_labels:
                metrics[name] = own
            noisy, average = (
                loss.of_scores(divergence, "", prefix) for prefix in (_NOISY, _AVERAGE)
            )
            add(f"smoothness_{name}", noisy, options.smart_weight)
            add(f"proximal_{name}", average, options.smart_proximal_weight)
            if self.teacher is not None:
                soft = soft_targets(options.distill_temperature)
                taught = loss.of_scores(soft, "", _TEACHER)
                add(f"teacher_{name}", taught, options.distill_logits)
        if self.teacher is not None:
            add("teacher_cosine", of_tokens(_COSINE), options.distill_cosine)
            add("teacher_hidden", of_tokens(_HIDDEN), options.distill_hidden)
            add("teacher_attention", of_tokens(_ATTENTION), options.distill_attention)
        return Objective(losses, metrics)

    def _copied(
        self, kind: str, weights: Sequence[keras.Variable]
    ) -> Callable[[], Values]:
        """Makes copies of weights: variables of the same shape, part of the state."""
        # Returns a function: Keras would treat a list of weights as this layer's own.
        if not weights:
            return lambda: ()
        names = {id(one): name for name, one in weights_by_name(self.model).items()}
        pairs = []
        for weight in weights:
            name = f"{kind}/{names[id(weight)]}"
            self.state[name] = self.add_weight(
                name=name.replace("/", "_"),
                shape=weight.shape,
                initializer="zeros",
                trainable=False,
            )
            pairs.append((weight, self.state[name]))
        return lambda: pairs


class _Passed(collections.defaultdict):
    """The tensors that have passed through a model: point -> tensors, in order."""

    def __init__(self) -> None:
        super().__init__(list)

    def __call__(self, point: str, x: Any) -> Any:
        self[point].append(x)
        return x


def _adding(noise: Any) -> Observer:
    """Returns an observer that adds noise to the embeddings."""
    return lambda point, x: x + ops.cast(noise, x.dtype) if point == "embeddings" else x


def _float32(x: Any) -> Any:
    return ops.cast(x, "float32")


def _named(prefix: str, outputs: Outputs) -> dict[str, Any]:
    return {prefix + name: value for name, value in outputs.items()}


def _paired(ours: Sequence[Any], theirs: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Pairs each of ours with every k-th of theirs."""
    step = len(theirs) // len(ours)
    return list(zip(ours, theirs[step - 1 :: step], strict=True))


def _difference_of_scores(ours: Any, theirs: Any) -> Any:
    """Returns the mean of (a - b)^2 over heads and attended tokens: [B, S]."""
    # The scores are those before the softmax, which the paper found to be better
    # targets.
    (scores, bias), (scores_there, _) = ours, theirs
    is_visible = ops.cast(bias[:, 0] >= 0.0, "float32")
    square = ops.square(_float32(scores) - _float32(scores_there))
    square = ops.mean(square, axis=1) * is_visible
    count = ops.sum(is_visible * ops.ones_like(square), axis=-1)
    return ops.divide_no_nan(ops.sum(square, axis=-1), count)


def checked_class_weights(
    losses: LossOptions,
    name: str,
    problem_type: str,
    labels: Sequence[str],
    counts: np.ndarray | None,
) -> list[float] | None:
    """Returns the classes' weights, if any are given for a task.

    Raises InputError for losses that the task's predictions do not allow.
    """
    if losses.label_smoothing and problem_type == REGRESSION:
        raise InputError(f"`label_smoothing` needs labels; {name} has numbers.")
    if not losses.class_weights:
        return None
    if counts is None or problem_type != SINGLE_LABEL:
        raise InputError(f"`class_weights`: {name} does not choose one class.")
    return class_weights(losses.class_weights, labels, counts)


def class_weights(
    wanted: Sequence[str], labels: Sequence[str], counts: np.ndarray
) -> list[float]:
    """Returns the weight of each class, as --class_weights asks."""
    # Balanced, as in scikit-learn: N / (C n) for a class with n of the N examples, with
    # C classes that occur.
    if tuple(wanted) == (BALANCED,):
        share = counts.sum() / np.count_nonzero(counts)
        return [float(share / count) if count else 0.0 for count in counts]
    found = dict.fromkeys(labels, 1.0)
    for each in wanted:
        label, _, weight = each.rpartition(":")
        try:
            value = float(weight)
        except ValueError:
            value = -1.0
        if label not in found or not 0.0 <= value < np.inf:
            raise InputError(
                f"`class_weights={each}` must be {BALANCED}, or LABEL:WEIGHT with one"
                f" of the labels {', '.join(labels)} and a number from 0."
            )
        found[label] = value
    return list(found.values())
