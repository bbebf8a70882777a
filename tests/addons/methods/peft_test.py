"""Adapters of PEFT: beside whole folders of transformers, merged here by hand."""

import json
import math
import os

import numpy as np
import safetensors.numpy
from absl.testing import parameterized

from bert_tf.addons.methods import peft
from bert_tf.base.errors import InputError
from bert_tf.conversion import export, loading
from bert_tf.conversion.huggingface import read_tensors
from bert_tf.conversion.source import open_source, open_tokenizer
from bert_tf.modeling.heads import BertClassifier, BertSpanPredictor
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.text.vocabulary import Vocabulary
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.script_case import FolderCase
from tests.training import toy

H, F, V = 8, 12, 11
CONFIG = {
    "model_type": "bert",
    "vocab_size": V,
    "hidden_size": H,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": F,
    "max_position_embeddings": 6,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
}
LAYER = {
    "attention.self.query": (H, H),
    "attention.self.key": (H, H),
    "attention.self.value": (H, H),
    "attention.output.dense": (H, H),
    "attention.output.LayerNorm": (H,),
    "intermediate.dense": (F, H),
    "output.dense": (H, F),
    "output.LayerNorm": (H,),
}
ENCODER = {
    "bert.embeddings.word_embeddings": (V, H),
    "bert.embeddings.position_embeddings": (6, H),
    "bert.embeddings.token_type_embeddings": (2, H),
    "bert.embeddings.LayerNorm": (H,),
    **{
        f"bert.encoder.layer.{i}.{name}": shape
        for i in range(2)
        for name, shape in LAYER.items()
    },
}
POOLER = {"bert.pooler.dense": (H, H)}
QUERY, VALUE = (f"bert.encoder.layer.1.attention.self.{x}" for x in ("query", "value"))
CLASSIFIER, SPANS = "BertForSequenceClassification", "BertForQuestionAnswering"
MASKED_LM = "BertForMaskedLM"
LAYERS = {
    CLASSIFIER: ENCODER | POOLER | {"classifier": (3, H)},
    SPANS: ENCODER | {"qa_outputs": (2, H)},
    MASKED_LM: ENCODER
    | {
        "cls.predictions.transform.dense": (H, H),
        "cls.predictions.transform.LayerNorm": (H,),
    },
}
WORDS = "bert.embeddings.word_embeddings"
RECORD = {
    "input_ids": np.array([[2, 7, 10, 4, 3], [2, 5, 3, 0, 0]]),
    "input_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
    "segment_ids": np.array([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]]),
}
POSITIONS = {"masked_lm_positions": np.array([[1, 2, 3], [1, 1, 2]])}


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 0.3, shape).astype(np.float32)


def tensors_of(name):
    """Random weights of a class of transformers."""
    found = {}
    for number, (layer, shape) in enumerate(LAYERS[name].items()):
        found[f"{layer}.weight"] = drawn(*shape, seed=number)
        if not layer.endswith("_embeddings"):
            found[f"{layer}.bias"] = drawn(shape[0], seed=100 + number)
    if name == MASKED_LM:
        found["cls.predictions.bias"] = drawn(V, seed=200)
    return found


def matrices(layer, rank, inputs, outputs):
    """A layer's A and B by PEFT's names."""
    return {
        f"{layer}.lora_A.weight": drawn(rank, inputs, seed=len(layer)),
        f"{layer}.lora_B.weight": drawn(outputs, rank, seed=len(layer) + 50),
    }


class PeftTestCase(FolderCase):
    def model(self, name, tensors=None, **fields):
        """A folder of transformers."""
        folder = self.folder(f"{name}{len(os.listdir(self.get_temp_dir()))}")
        values = {**CONFIG, "architectures": [name], **fields}
        runs.write_json(values, folder, "config.json")
        tensors = tensors_of(name) if tensors is None else tensors
        safetensors.numpy.save_file(tensors, f"{folder}/model.safetensors")
        return folder

    def adapter(self, base, tensors, **fields):
        """A folder of PEFT, with some of the fields that PEFT writes."""
        folder = self.folder(f"adapter{len(os.listdir(self.get_temp_dir()))}")
        values = {
            "peft_type": "LORA",
            "base_model_name_or_path": base,
            "r": 2,
            "lora_alpha": 6,
            "lora_dropout": 0.1,
            "bias": "none",
            "use_dora": False,
            "loftq_config": {},
            "layer_replication": None,
            "target_modules": ["query"],
            "init_lora_weights": True,
        }
        runs.write_json({**values, **fields}, folder, "adapter_config.json")
        named = {f"base_model.model.{name}": x for name, x in tensors.items()}
        safetensors.numpy.save_file(named, f"{folder}/adapter_model.safetensors")
        return folder

    def assert_same(self, load, adapter, merged, record=RECORD):
        found, expected = load(adapter)(record), load(merged)(record)
        self.assertEqual(found.keys(), expected.keys())
        for name in expected:
            self.assertAllClose(found[name], expected[name], rtol=0, atol=1e-5)
        return found


class ReadTest(PeftTestCase):
    def test_a_classifier_on_a_base_with_another_head(self):
        merged = tensors_of(CLASSIFIER)
        pooler = {n: x for n, x in merged.items() if "pooler" in n}
        base = self.model(MASKED_LM, tensors_of(MASKED_LM) | pooler)
        own = {n: x for n, x in merged.items() if n.startswith("classifier")}
        for layer in (QUERY, VALUE):
            pair = matrices(layer, 2, H, H)
            own |= pair
            a, b = pair.values()
            merged[f"{layer}.weight"] = merged[f"{layer}.weight"] + 3 * b @ a
        adapter = self.adapter(base, own, task_type="SEQ_CLS")
        whole = self.model(CLASSIFIER, merged, num_labels=3)
        self.assert_same(loading.load_classifier, adapter, whole)
        source = open_source(adapter)
        self.assertEqual(set(source.weights), set(open_source(whole).weights))
        self.assertIsNone(source.labels)
        file = f"{adapter}/adapter_model.safetensors"
        self.assertEqual(set(open_source(file).weights), set(source.weights))

    def test_settings_are_obeyed(self):
        merged = tensors_of(CLASSIFIER)
        whole = merged.copy()
        intermediate = "bert.encoder.layer.0.intermediate.dense"
        own = {
            **matrices(QUERY, 2, H, H),
            **matrices(VALUE, 4, H, H),
            **matrices(intermediate, 2, H, F),
            **matrices("classifier", 2, H, 3),
            f"{QUERY}.base_layer.bias": drawn(H, seed=7),
            "bert.pooler.dense.weight": drawn(H, H, seed=8),
            "bert.embeddings.LayerNorm.bias": drawn(H, seed=9),
        }
        root = math.sqrt(2)
        for layer, scale in {
            QUERY: 10 / root,
            VALUE: 6 / 2,
            intermediate: 6 / root,
            "classifier": 6 / root,
        }.items():
            a, b = own[f"{layer}.lora_A.weight"], own[f"{layer}.lora_B.weight"]
            whole[f"{layer}.weight"] = whole[f"{layer}.weight"] + scale * b @ a
        whole[f"{QUERY}.bias"] = own[f"{QUERY}.base_layer.bias"]
        for name in ("bert.pooler.dense.weight", "bert.embeddings.LayerNorm.bias"):
            whole[name] = own[name]
        labels = {"0": "a", "1": "b", "2": "c"}
        adapter = self.adapter(
            self.model(CLASSIFIER, id2label=labels),
            own,
            use_rslora=True,
            rank_pattern={"value": 4},
            alpha_pattern={r"layer\.1\.attention\.self\.query": 10, "self": 99},
            auto_mapping={"base_model_class": CLASSIFIER},
        )
        merged = self.model(CLASSIFIER, whole, num_labels=3)
        self.assert_same(loading.load_classifier, adapter, merged)
        self.assertEqual(open_source(adapter).labels, ("a", "b", "c"))

    def test_tied_matrices_part(self):
        """LoRA of the embeddings leaves the masked LM's output, and vice versa."""
        tensors = tensors_of(MASKED_LM)
        old = tensors[f"{WORDS}.weight"]
        a, b = drawn(2, V), drawn(H, 2)
        decoder = "cls.predictions.decoder"
        pair = matrices(decoder, 2, H, V)
        product = pair[f"{decoder}.lora_B.weight"] @ pair[f"{decoder}.lora_A.weight"]
        names = f"{WORDS}.lora_embedding_A", f"{WORDS}.lora_embedding_B"
        for own, words, matrix in (
            (dict(zip(names, (a, b), strict=True)), old + 3 * (b @ a).T, old),
            (pair, old, old + 3 * product),
        ):
            both = {f"{WORDS}.weight": words, f"{decoder}.weight": matrix}
            merged = {n: x.astype(np.float32) for n, x in {**tensors, **both}.items()}
            whole = self.model(MASKED_LM, merged, tie_word_embeddings=False)
            its_class = {"base_model_class": MASKED_LM}
            adapter = self.adapter(self.model(MASKED_LM), own, auto_mapping=its_class)
            load, record = loading.load_pretrainer, RECORD | POSITIONS
            self.assert_same(load, adapter, whole, record)

    def test_questions_have_one_segment(self):
        """As PEFT's model of questions computes, which drops `token_type_ids`."""
        own = matrices(QUERY, 2, H, H)
        a, b = own.values()
        merged = tensors_of(SPANS)
        merged[f"{QUERY}.weight"] = merged[f"{QUERY}.weight"] + 3 * b @ a
        adapter = self.adapter(self.model(SPANS), own, task_type="QUESTION_ANS")
        load = loading.load_span_predictor
        found = load(adapter)(RECORD)
        whole, zeros = load(self.model(SPANS, merged)), RECORD["segment_ids"] * 0
        expected = whole({**RECORD, "segment_ids": zeros})
        for name in expected:
            self.assertAllClose(found[name], expected[name], rtol=0, atol=1e-5)
        own_class = {"base_model_class": SPANS}
        plain = self.adapter(self.model(SPANS), own, auto_mapping=own_class)
        self.assert_same(load, plain, self.model(SPANS, merged))

    def test_an_encoder_has_no_prefix(self):
        name = QUERY.removeprefix("bert.")
        own = matrices(name, 2, H, H)
        a, b = own.values()
        merged = tensors_of(CLASSIFIER)
        merged[f"{QUERY}.weight"] = merged[f"{QUERY}.weight"] + 3 * b @ a
        adapter = self.adapter(
            self.model(CLASSIFIER), own, task_type="FEATURE_EXTRACTION"
        )
        whole = self.model(CLASSIFIER, merged)
        self.assert_same(loading.load_encoder, adapter, whole)
        self.assertNotIn("output_weights", open_source(adapter).weights)

    def test_the_tokenizer_is_its_own_or_its_bases(self):
        base = self.model(CLASSIFIER)
        adapter = self.adapter(base, matrices(QUERY, 2, H, H))
        others = [f"word{i}" for i in range(V - 5)]
        Vocabulary(runs.TOKENS[:5] + others).save(f"{base}/vocab.txt")
        self.assertEqual([*open_tokenizer(adapter).vocabulary][5:], others)
        others.reverse()
        Vocabulary(runs.TOKENS[:5] + others).save(f"{adapter}/vocab.txt")
        self.assertEqual([*open_source(adapter).tokenizer.vocabulary][5:], others)

    def test_what_is_not_read(self):
        base, own = self.model(CLASSIFIER), matrices(QUERY, 2, H, H)
        a, b = own
        empty = self.folder("empty")
        for tensors, fields, pattern in (
            (own, {"peft_type": "IA3"}, "\"LORA\" is read. Received: .* 'IA3'.*merge_"),
            (own, {"use_dora": True}, "not computed here: use_dora.*merge_and_unload"),
            (own, {"of_tomorrow": 1, "lora_bias": True}, "here: lora_bias, of_tomo"),
            (own, {"init_lora_weights": "pissa"}, "not computed here: init_lora_wei"),
            (own, {"base_model_name_or_path": "hub/x"}, "'hub/x', is not a folder h"),
            (own, {"base_model_name_or_path": None}, "its base, '', is not a folder"),
            (own, {"base_model_name_or_path": empty}, "must be a model of transform"),
            (own, {"r": "2"}, '"r" must be an integer'),
            (own, {"r": 4}, r"\[2, 8\] and \[8, 2\], by the .* \[4, 8\] and \[8, 4\]"),
            (own, {"rank_pattern": {"query": 0}}, "must be at least 1"),
            (own, {"alpha_pattern": {"(": 1}}, r"pattern '\(', which is no regular"),
            ({a: own[a]}, {}, "self.query is not read: A.weight"),
            (own | {f"{QUERY}.lora_magnitude_vector": own[a]}, {}, "magnitude_vector"),
            (matrices("score", 2, H, H), {}, "score is not read: no such weight"),
            (own | {"bert.embeddings.other": own[a]}, {}, "no place in BERT: bert.emb"),
            ({"bert.pooler.dense.bias": own[b]}, {}, r"pooler/dense/bias is \[8, 2\]"),
        ):
            folder = self.adapter(base, tensors, **fields)
            with self.assertRaisesRegex(InputError, pattern) as caught:
                open_source(folder)
            self.assertNotIn("\n", str(caught.exception))
            self.assertIn(folder, str(caught.exception))
        os.remove(f"{folder}/adapter_model.safetensors")
        with self.assertRaisesRegex(InputError, "is missing; pickles are not read"):
            open_source(folder)


class WriteTest(PeftTestCase, parameterized.TestCase):
    @parameterized.parameters(
        (BertClassifier, (3,), "SEQ_CLS", "classifier", "pooler"),
        (BertSpanPredictor, (), None, "qa_outputs"),
    )
    def test_a_run_with_lora(self, kind, arguments, task, *saved):
        model = kind(toy.CONFIG, *arguments, lora_rank=2)
        randomize(model)
        values = {n: x.numpy() for n, x in weights_by_name(model).items()}
        run = runs.save(self.path("run"), model)
        base = self.path("base")
        runs.write_json({"init_checkpoint": base}, run, "flags.json")
        export.write_huggingface(self.folder("base"), self.base(values))
        with export.NewFolder(self.path("peft")) as folder:
            peft.write(folder, export.completed(open_source(run)))
        with open(f"{folder}/adapter_config.json") as file:
            settings = json.load(file)
        self.assertEqual(settings["target_modules"], ["query", "value"])
        self.assertEqual(settings["modules_to_save"], sorted(saved))
        self.assertEqual((settings["r"], settings["lora_alpha"]), (2, 2))
        self.assertEqual(settings["task_type"], task)
        self.assertEqual(settings["base_model_name_or_path"], base)
        stored = read_tensors(f"{folder}/adapter_model.safetensors")
        layer = "layer_0/attention/self/query"
        theirs = "base_model.model.bert.encoder.layer.0.attention.self.query.lora_"
        for ours, name in (("a", "A"), ("b", "B")):
            matrix = values[f"bert/encoder/{layer}/lora_kernel_{ours}"]
            self.assertAllEqual(stored[f"{theirs}{name}.weight"].read(), matrix.T)
        heads = {name.split(".")[2] for name in stored}
        self.assertEqual(heads, {"bert", saved[0]})
        weights, merged = (open_source(path).weights for path in (folder, run))
        for name in merged:
            self.assertAllClose(weights[name], merged[name], rtol=0, atol=1e-6)

    def base(self, values):
        """The model that was adapted, without a head."""
        model = BertClassifier(toy.CONFIG, 2)
        for name, variable in weights_by_name(model).items():
            if name in values and name.startswith("bert/"):
                variable.assign(values[name])
        source = open_source(runs.save(self.path("before"), model))
        return export.completed(source, heads=())

    def test_what_is_not_written(self):
        for number, (options, pattern) in enumerate(
            (({}, "no run with `lora_rank`"), ({"adapter_size": 2}, "adapter_size"))
        ):
            model = BertClassifier(toy.CONFIG, 2, **options)
            run = runs.save(self.path(f"run{number}"), model)
            with self.assertRaisesRegex(InputError, pattern):
                peft.write(self.folder("out"), export.completed(open_source(run)))
