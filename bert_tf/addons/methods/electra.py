"""ELECTRA: a discriminator that learns which tokens a small generator has replaced.

Clark et al. 2020, section 2. The generator, a small BERT, predicts the masked tokens;
one token is drawn from each distribution to replace the mask; the discriminator
predicts for every token whether it is the original one. A token that happens to be
right counts as original. Both are trained at once, the generator by the masked LM
alone: no gradient flows through the draws. They share the embeddings.

Shapes: B batch, S sequence, P predictions, H hidden, V vocabulary.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.base.config import DISCRIMINATOR_WEIGHT, GENERATOR_SIZE, BertConfig
from bert_tf.base.errors import InputError
from bert_tf.modeling.encoder import BertEncoder, as_config
from bert_tf.modeling.fused import compiled, random_bits, step_seed
from bert_tf.modeling.head_model import HeadModel
from bert_tf.modeling.heads import GatherPositions, MaskedLMHead
from bert_tf.modeling.layers import Stored, activation, dense
from bert_tf.modeling.objectives import MASKED_LM, replaced_tokens

# For a number per sequence, from its tokens: primes, so that products of ids and
# places differ and fit into 32 bits.
_PLACES, _NUMBERS = 8191, 65521


def generator_config(config: BertConfig, size: float) -> BertConfig:
    """Returns the generator's config: a share of the width, with as many layers."""
    if not config.is_bidirectional or config.bilstm:
        raise InputError(
            "ELECTRA's model reads in both directions, and has one encoder and no"
            " BiLSTM. Give another config."
        )
    hidden_size = round(size * config.hidden_size)
    heads = max(1, round(size * config.num_attention_heads))
    if not hidden_size or hidden_size % heads:
        raise InputError(
            f"`generator_size={size}` makes a hidden size of {hidden_size} and {heads}"
            " attention heads, one of which must be a multiple of the other. Give"
            " another share."
        )
    return dataclasses.replace(
        config,
        embedding_size=config.embedding_width,
        hidden_size=hidden_size,
        num_attention_heads=heads,
        intermediate_size=max(1, round(size * config.intermediate_size)),
        tie_word_embeddings=True,
    )


@keras.saving.register_keras_serializable(package="bert_tf")
class ReplacedTokens(Stored, keras.layers.Layer):
    """Tokens drawn from a generator's distributions, for the masked ones.

    By the Gumbel-max trick: the largest of logits plus noise. The noise is a function
    of a seed, the sequence's tokens, the slot and the token, so it does not depend on
    the part of a batch that has the sequence. In inference the seed is constant.
    """

    def __init__(self, dtype: Any = None):
        # Logits stay in float32 under any policy.
        super().__init__(autocast=False, dtype=dtype, name="replaced_tokens")
        self.seed_generator = keras.random.SeedGenerator()

    def call(
        self,
        logits: Any,
        input_ids: Any,
        positions: Any,
        ids: Any,
        weights: Any,
        training: bool | None = None,
    ) -> tuple[Any, Any]:
        """Returns new ids [B, S], and 1.0 where they differ from the originals."""
        # The arguments are logits [B, P, V], masked ids [B, S], and positions, ids and
        # weights [B, P].
        seed = ops.zeros([2], "uint32")
        if training:
            seed = ops.cast(step_seed(self.seed_generator), "uint32")
        drawn = _drawn(ops.stop_gradient(logits), seed, _numbers_of(input_ids))
        original = _with_tokens(input_ids, positions, ids, weights)
        replaced = _with_tokens(input_ids, positions, drawn, weights)
        return replaced, ops.cast(replaced != original, "float32")

    def compute_output_spec(self, logits: Any, input_ids: Any, *_: Any) -> Any:
        """Returns the shapes and types of the outputs."""
        shape = tuple(input_ids.shape)
        return keras.KerasTensor(shape, "int32"), keras.KerasTensor(shape, "float32")


def _numbers_of(input_ids: Any) -> Any:
    """Returns a number per sequence [B], from its tokens and their places."""
    places = ops.arange(ops.shape(input_ids)[1], dtype="int32") * 7919 % _PLACES + 1
    products = (ops.cast(input_ids, "int32") % _NUMBERS + 1) * places[None, :]
    return ops.sum(products % _NUMBERS, axis=1)


@compiled
def _drawn(logits: Any, seed: Any, numbers: Any) -> Any:
    """Draws one token from each distribution: [B, P] int32."""
    _, slots, tokens = ops.shape(logits)
    slot = ops.cast(ops.arange(slots, dtype="int32"), "uint32")[None, :, None]
    token = ops.cast(ops.arange(tokens, dtype="int32"), "uint32")[None, None, :]
    number = ops.cast(numbers, "uint32")[:, None, None]
    bits = random_bits((seed[0] + slot, seed[1]), (token, number))
    # Uniform in (0, 1), with the 24 bits that float32 holds.
    few = ops.cast(ops.right_shift(bits, ops.convert_to_tensor(np.uint32(8))), "int32")
    uniform = (ops.cast(few, "float32") + 0.5) * 2.0**-24
    noise = -ops.log(-ops.log(uniform))
    return ops.cast(ops.argmax(logits + noise, axis=-1), "int32")


def _with_tokens(input_ids: Any, positions: Any, tokens: Any, weights: Any) -> Any:
    """Returns the ids [B, S] with other tokens where the weight is not 0."""
    # Compared row by row: a scatter into the flattened batch is one that XLA cannot
    # divide among devices.
    place = ops.arange(ops.shape(input_ids)[1], dtype="int32")[None, None, :]
    is_here = ops.cast(positions, "int32")[:, :, None] == place
    is_here = ops.logical_and(is_here, (weights > 0)[:, :, None])
    new = ops.max(ops.where(is_here, ops.cast(tokens, "int32")[:, :, None], -1), axis=1)
    return ops.where(new >= 0, new, ops.cast(input_ids, "int32"))


@keras.saving.register_keras_serializable(package="bert_tf")
class ReplacedTokenHead(Stored, keras.layers.Layer):
    """A score per token: whether it replaces the original's."""

    def __init__(self, config: BertConfig, dtype: Any = None):
        super().__init__(dtype=dtype, name="discriminator_predictions")
        self.dense = dense(config, config.hidden_size, self.dtype_policy)
        self.score = dense(config, 1, self.dtype_policy, "dense_1")
        self.activation = activation(config.hidden_act)

    def build(self, input_shape: tuple) -> None:
        """Builds `dense` [H, H] and `score` [H, 1]."""
        self.dense.build(input_shape)
        self.score.build(input_shape)
        self.built = True

    def call(self, x: Any) -> Any:
        """Converts [B, S, H] to logits [B, S] in float32."""
        return ops.cast(self.score(self.activation(self.dense(x)))[..., 0], "float32")


@keras.saving.register_keras_serializable(package="bert_tf")
class ElectraPretrainer(HeadModel):
    """Replaced-token detection. The encoder is the discriminator's, without a pooler.

    Inputs: the encoder's, and masked_lm_positions, masked_lm_ids and masked_lm_weights
    [B, P]. Outputs, in float32: masked_lm_logits [B, P, V] of the generator;
    discriminator_logits and is_replaced [B, S].

    Args:
        config: the discriminator's BertConfig, a dict of its fields, or a size's name.
        generator_size: the generator's share of the width.
        discriminator_weight: the weight of the discriminator's loss; the masked LM's
            is 1.
        dtype: as BertPretrainer's.
        name: the model's name.
        **options: as BertPretrainer's.
    """

    def __init__(
        self,
        config: BertConfig | Mapping[str, Any] | str,
        *,
        generator_size: float = GENERATOR_SIZE,
        discriminator_weight: float = DISCRIMINATOR_WEIGHT,
        dtype: Any = None,
        name: str = "electra_pretrainer",
        **options: Any,
    ):
        config = as_config(config)
        small = generator_config(config, generator_size)

        # === Layers ===
        encoder = BertEncoder(config, use_pooler=False, dtype=dtype, **options)
        with keras.name_scope("cls"):
            generator = BertEncoder(
                small,
                use_pooler=False,
                embeddings=encoder.embeddings,
                dtype=dtype,
                name="generator",
                **options,
            )
        gather = GatherPositions(dtype=dtype, name="gather_positions")
        masked_lm = MaskedLMHead(
            small, encoder.embeddings, dtype=dtype, name="generator_predictions"
        )
        replace = ReplacedTokens(dtype=dtype)
        head = ReplacedTokenHead(config, dtype=dtype)

        # === Functional Model ===
        inputs = dict(encoder.input)
        encoded = generator(inputs)["sequence_output"]
        slots = {
            key: keras.Input((None,), dtype=type_, name=key)
            for key, type_ in (
                ("masked_lm_positions", "int32"),
                ("masked_lm_ids", "int32"),
                ("masked_lm_weights", "float32"),
            )
        }
        with keras.name_scope("cls"):
            logits = masked_lm(gather(encoded, slots["masked_lm_positions"]))
            replaced, is_replaced = replace(
                logits, inputs["input_ids"], *slots.values()
            )
            states = encoder({**inputs, "input_ids": replaced})["sequence_output"]
            scores = head(states)

        # === Config ===
        super().__init__(
            encoder,
            {**inputs, **slots},
            {
                "masked_lm_logits": logits,
                "discriminator_logits": scores,
                "is_replaced": is_replaced,
            },
            MASKED_LM + replaced_tokens(discriminator_weight),
            name,
            generator_size=generator_size,
            discriminator_weight=discriminator_weight,
        )
