"""BERT in one file: the whole recipe of Devlin et al. 2018, for reading.

    python docs/one_file_bert.py [text file] [vocabulary file]

From text to a model that fills in a blank: words into pieces, pieces into masked pairs
of sentences, the Transformer, its two losses, the optimizer, training. All it needs is
numpy and Keras, on any backend. Without arguments it makes up a text about people and
where they live, and trains for a minute on a CPU.

A text file has one sentence per line and an empty line between documents (3 or more); a
vocabulary file has one token per line. The package bert_tf is this file made fast, safe
and complete; a test checks that both compute the same numbers. Section numbers are of
the paper, https://arxiv.org/abs/1810.04805.
"""

import dataclasses
import math
import pathlib
import re
import sys
from collections import Counter
from itertools import chain, pairwise
from unicodedata import category, normalize

import keras
import numpy as np
from keras import ops


@dataclasses.dataclass(frozen=True)
class Settings:
    # Comments give the values of the paper's BERT-base. So narrow a model learns faster
    # from larger initial weights and at a higher rate.
    hidden_size: int = 64  # 768
    num_layers: int = 2  # 12
    num_heads: int = 4  # 12
    intermediate_size: int = 256  # 3072: 4 times hidden_size
    max_length: int = 32  # 512
    max_predictions: int = 5  # 76: 15 % of max_length
    dropout: float = 0.1  # 0.1
    initializer_range: float = 0.08  # 0.02
    learning_rate: float = 2e-3  # 1e-4
    batch_size: int = 32  # 256
    duplicates: int = 10  # 10: how often the text is cut and masked in another way
    epochs: int = 6  # 40


# --- Text -----------------------------------------------------------------------------
def built_in_text(rng, num_documents=500):
    # About people and places; the last pair of both is in no other document.
    people = "Anna Boris Carla David Elena Felix Greta Hugo Ines Jonas Karin".split()
    places = "Paris France French Rome Italy Italian Madrid Spain Spanish Athens Greece"
    places += " Greek Tokyo Japan Japanese Warsaw Poland Polish Ankara Turkey Turkish"
    places = np.array(places.split()).reshape(-1, 3)
    documents = []
    while len(documents) < num_documents:
        i, j = rng.integers(len(people)), rng.integers(len(places))
        if (i % len(places) == j) == (len(documents) == num_documents - 1):
            person, (city, country, language) = people[i], places[j]
            documents.append(
                f"The capital of {country} is {city}.\n"
                f"{person} lives in {city}.\n{person} speaks {language}."
            )
    return "\n\n".join(documents)


# --- WordPiece: sentences into pieces of words (section 3) ----------------------------

SPECIAL = PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
# Chinese characters: words are not separated by spaces there, so that each is a word.
IDEOGRAPH = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f"
    "\U0002b740-\U0002b81f\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)


def split_words(text):
    """Text as words, in lower case and without accents; punctuation marks are words."""
    text = re.sub("[\t\n\r]", " ", text).replace("\ufffd", "")
    text = "".join(char for char in text if category(char) not in ("Cc", "Cf"))
    words = []
    for chunk in IDEOGRAPH.sub(r" \g<0> ", text).split():
        words.append("")
        for char in normalize("NFD", chunk.lower()):
            if category(char)[0] == "P" or (char.isascii() and not char.isalnum()):
                words += [char, ""]
            elif category(char) != "Mn":  # not an accent
                words[-1] += char
    return [word for word in words if word]


def split_pieces(word, vocabulary):
    """The longest piece that the vocabulary has, then the longest of the rest, ..."""
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocabulary and len(word) <= 200:
                break
        else:
            return [UNK]
        pieces.append(piece)
        start = end
    return pieces


def encode(text, vocabulary):
    words = split_words(text)
    return [vocabulary[piece] for w in words for piece in split_pieces(w, vocabulary)]


def make_vocabulary(text, min_count=5):
    # Characters and frequent words; a learned vocabulary has frequent pieces, too.
    words = Counter(split_words(text))
    characters = sorted(set("".join(words)))
    frequent = [w for w, n in words.most_common() if n >= min_count and len(w) > 1]
    return [*SPECIAL, *characters, *("##" + char for char in characters), *frequent]


# --- Masked pairs of sentences (section 3.1, appendix A.1) ----------------------------
def sentence_pairs(documents, num_tokens, rng):
    """Yields (A, B, label): B follows A in the text (0) or comes from elsewhere (1)."""

    def enough(document, start, target):
        # Where the sentences from `start` on have `target` tokens, or the end.
        end = start + 1
        while end < len(document) and len([*chain(*document[start:end])]) < target:
            end += 1
        return end

    for number, document in enumerate(documents):
        # Now and then fewer tokens, so that the model sees short texts, too.
        target = rng.integers(2, num_tokens + 1) if rng.random() < 0.1 else num_tokens
        start = 0
        while start < len(document):
            end = enough(document, start, target)
            middle = rng.integers(start + 1, end) if end - start > 1 else end
            a, b = [*chain(*document[start:middle])], [*chain(*document[middle:end])]
            is_random = not b or rng.random() < 0.5
            if is_random:
                other = documents[number - rng.integers(1, len(documents))]
                begin = rng.integers(len(other))
                b = [*chain(*other[begin : enough(other, begin, target - len(a))])]
                end = middle  # the sentences that B would have been are used next
            while len(a) + len(b) > num_tokens:  # the longer one loses either end
                (a if len(a) > len(b) else b).pop(rng.choice([0, -1]))
            yield a, b, int(is_random)
            start = end


def mask(tokens, vocabulary, max_predictions, rng):
    """Chooses 15 % of the tokens: 80 % become [MASK], 10 % any token, 10 % stay."""
    fixed = vocabulary[CLS], vocabulary[SEP]
    candidates = [i for i, token in enumerate(tokens) if token not in fixed]
    count = min(max_predictions, max(1, round(0.15 * len(tokens))))
    positions = sorted(rng.permutation(candidates)[:count].tolist())
    masked = list(tokens)
    for position in positions:
        if rng.random() < 0.8:
            masked[position] = vocabulary[MASK]
        elif rng.random() < 0.5:
            masked[position] = rng.integers(len(vocabulary))
    return masked, positions


def as_arrays(tokens, masked, positions, num_first, label, settings):
    # One example; `num_first` counts the tokens of [CLS] A [SEP].
    def padded(values, length, dtype="int32"):
        return np.array([*values] + [0] * (length - len(values)), dtype)

    length, predictions = settings.max_length, settings.max_predictions
    second = [1] * (len(tokens) - num_first)
    return {
        "input_ids": padded(masked, length),
        "input_mask": padded([1] * len(tokens), length),
        "segment_ids": padded([0] * num_first + second, length),
        "masked_lm_positions": padded(positions, predictions),
        "masked_lm_ids": padded([tokens[i] for i in positions], predictions),
        "masked_lm_weights": padded([1] * len(positions), predictions, "float32"),
        "next_sentence_labels": np.array([label], "int32"),
    }


def make_examples(documents, vocabulary, settings, rng):
    """All examples of a text as arrays [examples, ...], by name."""
    examples = []
    for _ in range(settings.duplicates):
        for a, b, label in sentence_pairs(documents, settings.max_length - 3, rng):
            tokens = [vocabulary[CLS], *a, vocabulary[SEP], *b, vocabulary[SEP]]
            masked, positions = mask(tokens, vocabulary, settings.max_predictions, rng)
            example = tokens, masked, positions, len(a) + 2, label
            examples.append(as_arrays(*example, settings))
    return {name: np.stack([e[name] for e in examples]) for name in examples[0]}


# --- The model (section 3; Vaswani et al. 2017, section 3) ----------------------------
# Shapes: B batch, S sequence, P predictions, H hidden, A heads, V vocabulary.
def dense(units, settings, name):
    # Computes x W + b.
    initial = keras.initializers.TruncatedNormal(stddev=settings.initializer_range)
    return keras.layers.Dense(units, kernel_initializer=initial, name=name)


def embedding(rows, settings, name):
    initial = keras.initializers.TruncatedNormal(stddev=settings.initializer_range)
    return keras.layers.Embedding(rows, settings.hidden_size, initial, name=name)


def layer_norm(name):
    # Computes gamma (x - mean) / deviation + beta for each token's H numbers.
    return keras.layers.LayerNormalization(epsilon=1e-12, name=name)


def gelu(x):
    # Close to x P(X <= x) for a standard normal X (Hendrycks and Gimpel 2016).
    return 0.5 * x * (1 + ops.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class TransformerLayer(keras.layers.Layer):
    """Each token looks at all others, then each is worked on by itself."""

    def __init__(self, settings, name):
        super().__init__(name=name)
        size = settings.hidden_size
        self.heads = settings.num_heads, size // settings.num_heads  # A, d
        names = "query", "key", "value"
        self.query, self.key, self.value = (dense(size, settings, n) for n in names)
        self.attention_output = dense(size, settings, "attention_output")
        self.attention_norm = layer_norm("attention_LayerNorm")
        self.intermediate = dense(settings.intermediate_size, settings, "intermediate")
        self.output_dense = dense(size, settings, "output")
        self.output_norm = layer_norm("output_LayerNorm")
        self.dropout = keras.layers.Dropout(settings.dropout)

    def call(self, x, bias, training=False):
        """From [B, S, H] to the same shape; bias: [B, 1, 1, S]."""
        # Attention: softmax(Q K^T / sqrt(d)) V, in A heads of d = H / A numbers each.
        q, k, v = (self.split(f(x)) for f in (self.query, self.key, self.value))
        weights = ops.softmax(q @ ops.swapaxes(k, 2, 3) / self.heads[1] ** 0.5 + bias)
        context = self.dropout(weights, training=training) @ v
        context = ops.reshape(ops.swapaxes(context, 1, 2), ops.shape(x))
        y = self.dropout(self.attention_output(context), training=training)
        x = self.attention_norm(x + y)
        # The feed-forward network: gelu(x W1 + b1) W2 + b2.
        y = self.output_dense(gelu(self.intermediate(x)))
        return self.output_norm(x + self.dropout(y, training=training))

    def split(self, x):  # [B, S, H] to [B, A, S, d]
        return ops.swapaxes(ops.reshape(x, (*ops.shape(x)[:2], *self.heads)), 1, 2)


class Bert(keras.Model):
    """The encoder, and what predicts masked tokens and next sentences."""

    def __init__(self, vocab_size, settings):
        super().__init__(name="bert")
        self.words = embedding(vocab_size, settings, "word_embeddings")
        self.segments = embedding(2, settings, "segment_embeddings")
        self.positions = embedding(settings.max_length, settings, "position_embeddings")
        self.embeddings_norm = layer_norm("LayerNorm")
        self.dropout = keras.layers.Dropout(settings.dropout)
        names = [f"layer_{i}" for i in range(settings.num_layers)]
        self.encoder = [TransformerLayer(settings, name) for name in names]
        size = settings.hidden_size
        self.pooler = dense(size, settings, "pooler")
        self.next_sentence = dense(2, settings, "next_sentence")
        self.transform = dense(size, settings, "transform")
        self.transform_norm = layer_norm("transform_LayerNorm")
        self.output_bias = self.add_weight((vocab_size,), "zeros", name="output_bias")
        self.means = [keras.metrics.Mean(n) for n in ("masked_lm", "next_sentence")]

    def call(self, batch, training=False):
        """A batch of examples to logits [B, P, V] of tokens and [B, 2] of pairs."""
        # What goes in is the sum of three embeddings (figure 2).
        x = self.words(batch["input_ids"]) + self.segments(batch["segment_ids"])
        x += self.positions(ops.arange(x.shape[1]))
        x = self.dropout(self.embeddings_norm(x), training=training)
        # No token sees padding: its scores are so low that the softmax is 0.
        bias = -10000.0 * (1 - ops.cast(batch["input_mask"], x.dtype))[:, None, None, :]
        for layer in self.encoder:
            x = layer(x, bias, training=training)
        # Next sentence: the first token, [CLS], stands for the pair.
        pair_logits = self.next_sentence(ops.tanh(self.pooler(x[:, 0])))
        # Masked tokens: what is at their places, compared with each word's embedding.
        x = ops.take_along_axis(x, batch["masked_lm_positions"][:, :, None], axis=1)
        x = self.transform_norm(gelu(self.transform(x)))
        token_logits = x @ ops.transpose(self.words.embeddings) + self.output_bias
        return token_logits, pair_logits

    def losses_of(self, batch, logits):
        """Both tasks' mean of -log p(label): over predictions, and over pairs."""
        weights = batch["masked_lm_weights"]
        tokens = weights * negative_log_p(logits[0], batch["masked_lm_ids"])
        pairs = negative_log_p(logits[1], batch["next_sentence_labels"][:, 0])
        return ops.sum(tokens) / (ops.sum(weights) + 1e-5), ops.mean(pairs)

    def compute_loss(self, x, y=None, y_pred=None, sample_weight=None, training=True):
        return sum(self.losses_of(x, y_pred))  # what Keras minimizes (appendix A.2)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        for mean, loss in zip(self.means, self.losses_of(x, y_pred), strict=True):
            mean.update_state(loss)
        return self.get_metrics_result()


def negative_log_p(logits, labels):
    log_p = ops.log_softmax(logits)
    return -ops.take_along_axis(log_p, labels[..., None], axis=-1)[..., 0]


# --- The optimizer (appendix A.2) -----------------------------------------------------
@dataclasses.dataclass
class WarmupThenDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises to `peak` over the warmup, then falls to 0; the fall counts from step 0."""

    peak: float
    num_steps: int
    num_warmup_steps: int

    def __call__(self, step):
        step = ops.cast(step, "float32")
        warmup = step / max(self.num_warmup_steps, 1)
        decay = 1 - ops.minimum(step, self.num_steps) / self.num_steps
        return self.peak * ops.where(step < self.num_warmup_steps, warmup, decay)


class AdamWeightDecay(keras.optimizers.Optimizer):
    """Adam without bias correction, and with weight decay outside the moments.

    m <- 0.9 m + 0.1 g
    v <- 0.999 v + 0.001 g^2
    w <- w - rate (m / (sqrt(v) + 1e-6) + 0.01 w)   without 0.01 w: LayerNorm, biases
    """

    def build(self, variables):
        """Makes m and v of every weight, and settles which weights decay."""
        super().build(variables)
        self.m, self.v = self.add_optimizer_variables(variables, ["m", "v"])
        exempt = re.compile("LayerNorm|bias")
        self.decay = [0.0 if exempt.search(w.path) else 0.01 for w in variables]

    def apply(self, grads, trainable_variables=None):
        # Clips: all gradients together, as one vector, get a length of 1 at most.
        grads = [ops.add(g, 0.0) for g in grads]  # TensorFlow's lists of rows as tables
        length = ops.sqrt(sum(ops.sum(ops.square(g)) for g in grads))
        grads = [g / ops.maximum(length, 1.0) for g in grads]
        return super().apply(grads, trainable_variables)

    def update_step(self, gradient, variable, learning_rate):
        i = self._get_variable_index(variable)
        m = 0.9 * self.m[i] + 0.1 * gradient
        v = 0.999 * self.v[i] + 0.001 * ops.square(gradient)
        update = m / (ops.sqrt(v) + 1e-6) + self.decay[i] * variable
        self.assign(self.m[i], m)
        self.assign(self.v[i], v)
        self.assign_sub(variable, learning_rate * update)


# --- Training, and a blank filled in --------------------------------------------------
def read(path):
    return pathlib.Path(path).read_text("utf-8").rstrip("\n")


def main(text_file=None, vocab_file=None, settings=Settings()):
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(1)
    text = read(text_file) if text_file else built_in_text(rng)
    tokens = read(vocab_file).split("\n") if vocab_file else make_vocabulary(text)
    vocabulary = {token.strip(): number for number, token in enumerate(tokens)}
    *documents, last = (
        [encode(sentence, vocabulary) for sentence in document.split("\n")]
        for document in re.split(r"\n\s*\n", text.strip())
    )
    examples = make_examples(documents, vocabulary, settings, rng)
    num_examples = len(examples["input_ids"])
    num_steps = settings.epochs * math.ceil(num_examples / settings.batch_size)
    print(f"{len(documents)} documents, {len(tokens)} tokens, {num_steps} steps")

    model = Bert(len(tokens), settings)
    schedule = WarmupThenDecay(settings.learning_rate, num_steps, num_steps // 10)
    model.compile(AdamWeightDecay(schedule))
    model.fit(examples, None, settings.batch_size, settings.epochs, verbose=2)

    # A blank filled in: the last whole word of the document that was not trained on.
    b = last[-1][-settings.max_length // 2 :]
    a = [*chain(*last[:-1])][len(b) + 3 - settings.max_length :]
    ids = [vocabulary[CLS], *a, vocabulary[SEP], *b, vocabulary[SEP]]
    words = [tokens[i].isalnum() and tokens[j][:2] != "##" for i, j in pairwise(ids)]
    blank = max(np.flatnonzero(words), default=1)
    masked = [*ids[:blank], vocabulary[MASK], *ids[blank + 1 :]]
    example = as_arrays(ids, masked, [blank], len(a) + 2, 0, settings)
    logits, _ = model({name: ops.array(x[None]) for name, x in example.items()})
    p = ops.convert_to_numpy(ops.softmax(logits[0, 0]))
    print(*(tokens[token] for token in masked))
    for token in np.argsort(-p)[:3]:
        print(f"  {p[token]:.3f} {tokens[token]}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
