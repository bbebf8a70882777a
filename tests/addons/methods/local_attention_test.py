"""Local attention, against dense attention under the same masks."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

import bert_tf
from bert_tf.addons.methods.local_attention import (
    LocalAttentionMask,
    LocalSelfAttention,
)
from bert_tf.modeling import fused
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.weight_names import weights_by_name
from tests.modeling.examples import randomize, small_config

CONFIG = small_config(
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def rows(length, num_global=0):
    """Three rows: whole, one third padding, and nearly all padding."""
    rng = np.random.default_rng(length)
    mask = np.ones((3, length), np.int32)
    mask[1, length - length // 3 :] = 0
    mask[2, 2:] = 0
    segments = np.zeros((3, length), np.int32)
    segments[0, num_global:] = segments[1, max(num_global - 1, 0) :] = 1
    segments[2, 1:] = 1
    ids = rng.integers(1, CONFIG.vocab_size, (3, length)) * mask
    return {
        "input_ids": ids.astype(np.int32),
        "input_mask": mask,
        "segment_ids": segments * mask,
    }


def copied(config, source):
    """An encoder of another config, the global projections as the others."""
    encoder = BertEncoder(config, use_pooler=False)
    theirs = weights_by_name(source)
    for name, weight in weights_by_name(encoder).items():
        weight.assign(theirs[name.replace("_global", "")])
    return encoder


def dense_attention(x, weights, mask, is_global, window, num_heads):
    """Longformer's attention with all scores, in float64: [B, S, H]."""

    def by_head(part):
        y = x @ weights[f"{part}/kernel"] + weights[f"{part}/bias"]
        return y.reshape(*x.shape[:2], num_heads, -1)

    def attend(suffix, seen):
        query, key, value = (by_head(f"{p}{suffix}") for p in ("query", "key", "value"))
        scores = np.einsum("bqad,bkad->baqk", query, key) / np.sqrt(query.shape[-1])
        scores = np.where(seen[:, None], scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        shares = scores / scores.sum(-1, keepdims=True)
        return np.einsum("baqk,bkad->bqad", shares, value).reshape(x.shape)

    place = np.arange(x.shape[1])
    near = np.abs(place[:, None] - place) <= window
    keys = mask[:, None, :] == 1
    local = attend(
        "", keys & (near | is_global[:, None, :]) | np.eye(len(place), dtype=bool)
    )
    everywhere = attend("_global", np.broadcast_to(keys, local.shape[:1] + near.shape))
    return np.where(is_global[..., None], everywhere, local)


class LocalAttentionTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(1, 5, 6, 7, 12, 13, 31)
    def test_without_global_tokens_a_band_of_full_attention(self, length):
        full = BertEncoder(CONFIG, use_pooler=False, use_attention_mask=True)
        randomize(full)
        inputs = rows(length)
        place = np.arange(length)
        for window in (1, 6):
            band = np.abs(place[:, None] - place) <= window
            band = np.broadcast_to(band, (3, length, length)).astype(np.int32)
            local = copied(dataclasses.replace(CONFIG, attention_window=window), full)
            expected = full({**inputs, "attention_mask": band})["sequence_output"]
            for training in (False, True):
                found = local(inputs, training=training)["sequence_output"]
                is_token = inputs["input_mask"] == 1
                difference = np.abs(found - expected)[is_token].max()
                self.assertLess(difference, 2e-5)

    @parameterized.product(length=(3, 17), num_global=(0, 2), rate=(0.0, 0.3))
    def test_the_gradient_of_what_is_computed_again(self, length, num_global, rate):
        config = dataclasses.replace(
            CONFIG,
            attention_window=4,
            global_tokens=num_global or None,
            attention_probs_dropout_prob=rate,
        )
        layer = LocalSelfAttention(config)
        x = np.random.default_rng(1).normal(size=(3, length, config.hidden_size))
        x = tf.constant(x, tf.float32)
        layer.build(x.shape)
        for weight in layer.weights:
            if "seed" not in weight.path:
                values = np.random.default_rng(2).normal(size=weight.shape)
                weight.assign(values / np.sqrt(weight.shape[0]))
        inputs = rows(length, num_global)
        mask = LocalAttentionMask(config)(inputs["input_mask"], inputs["segment_ids"])
        seed = tf.constant([1, 2]) if rate else None

        def gradients():
            with tf.GradientTape() as tape:
                tape.watch(x)
                context, _ = layer(x, mask, training=True, seed=seed)
                total = tf.reduce_sum(context**2)
            return tape.gradient(total, [x, *layer.trainable_variables])

        found = tf.function(gradients)()
        self.assertTrue(fused.is_on())
        with fused.without_fusion():  # where all is kept
            kept = tf.function(lambda: gradients())()
        largest = max(np.abs(gradient).max() for gradient in kept)
        for one, other in zip(found, kept, strict=True):
            self.assertAllClose(one, other, rtol=0, atol=2e-6 * largest)

    @parameterized.product(length=(2, 6, 17, 24), num_global=(1, 6, 9))
    @pytest.mark.jax
    def test_global_tokens_by_the_formula(self, length, num_global):
        config = dataclasses.replace(
            CONFIG, attention_window=4, global_tokens=num_global
        )
        layer = LocalSelfAttention(config)
        x = np.random.default_rng(1).normal(size=(3, length, config.hidden_size))
        layer.build(x.shape)
        for weight in layer.weights:
            values = np.random.default_rng(2).normal(size=weight.shape)
            weight.assign(values / np.sqrt(weight.shape[0]))
        weights = {
            w.path.split("self/")[-1]: np.array(w).astype(float) for w in layer.weights
        }
        inputs = rows(length, num_global)
        mask, segments = inputs["input_mask"], inputs["segment_ids"]
        is_global = (mask == 1) & (segments == 0) & (np.arange(length) < num_global)
        bias = LocalAttentionMask(config)(mask, segments)
        context, _ = layer(x.astype(np.float32), bias)
        expected = dense_attention(
            x, weights, mask, is_global, 4, config.num_attention_heads
        )
        self.assertAllClose(
            np.array(context)[mask == 1], expected[mask == 1], rtol=1e-4, atol=1e-5
        )
        self.assertGreater(np.abs(expected).max(), 0.1)

    def test_a_window_over_all_is_full_attention(self):
        full = BertEncoder(CONFIG, use_pooler=False)
        randomize(full)
        inputs = rows(20, num_global=2)
        expected = full(inputs)["sequence_output"]
        for window in (19, 64):
            wide = dataclasses.replace(CONFIG, attention_window=window, global_tokens=2)
            found = copied(wide, full)(inputs)["sequence_output"]
            is_token = inputs["input_mask"] == 1
            self.assertAllClose(found[is_token], expected[is_token], atol=2e-6)

    def test_packed_sequences_stay_apart(self):
        full = BertEncoder(CONFIG, use_pooler=False, packed=True)
        randomize(full)
        local = BertEncoder(
            dataclasses.replace(CONFIG, attention_window=5),
            use_pooler=False,
            packed=True,
        )
        local.set_weights(full.get_weights())
        numbers = np.repeat([1, 2, 3, 4, 0], [6, 3, 5, 6, 3])[None].astype(np.int32)
        rng = np.random.default_rng(2)
        inputs = {
            "input_ids": rng.integers(1, 20, numbers.shape).astype(np.int32),
            "input_mask": (numbers > 0).astype(np.int32),
            "segment_ids": np.zeros_like(numbers),
            "sequence_ids": numbers,
            "cls_positions": np.array([[0, 6, 9, 14]], np.int32),
        }
        outputs = (one(inputs)["sequence_output"] for one in (full, local))
        expected, found = (np.array(one)[numbers > 0] for one in outputs)
        # No sequence is longer than the window: nothing is approximated.
        self.assertAllClose(found, expected, atol=2e-6)

    def test_what_is_not_there_is_refused(self):
        fields = CONFIG.to_dict()
        for more, message in (
            ({"global_tokens": 1}, "needs `attention_window`"),
            ({"attention_window": 0}, "must be a positive integer"),
            ({"attention_window": 4, "left_to_right": True}, "one direction"),
            (
                {"attention_window": 4, "embedding_size": 8, "num_hidden_groups": 1},
                "share their weights",
            ),
        ):
            with self.assertRaisesRegex(ValueError, message):
                bert_tf.BertConfig(**{**fields, **more})
        config = dataclasses.replace(CONFIG, attention_window=4)
        with self.assertRaisesRegex(ValueError, "for models without"):
            BertEncoder(config, output_attentions=True)
        config = dataclasses.replace(config, global_tokens=1)
        with self.assertRaisesRegex(ValueError, "which see the whole row"):
            BertEncoder(config, packed=True)


if __name__ == "__main__":
    tf.test.main()
