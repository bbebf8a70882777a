import json
import os
import pathlib

import tokenizers

from bert_tf.base.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.base.errors import InputError
from bert_tf.conversion.tokenizer_files import (
    read_labels,
    read_tokenizer,
    write_labels,
    write_tokenizer,
    write_tokenizer_json,
)
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer
from tests.script_case import FolderCase


class LabelFilesTest(FolderCase):
    def there_and_back(self, labels, problem_type):
        folder = self.folder()
        write_labels(folder, labels, problem_type)
        return read_labels(folder), sorted(os.listdir(folder))

    def test_which_files_there_are(self):
        labels, kind = "labels.txt", "problem_type.txt"
        for given, problem_type, found_type, files in (
            # Labels alone, where they tell all.
            (("a", "b c"), SINGLE_LABEL, None, [labels]),
            (("a", "b c"), None, None, [labels]),
            ((), REGRESSION, None, [labels]),
            (("a", "b"), MULTI_LABEL, MULTI_LABEL, [labels, kind]),
            (("a",), MULTI_LABEL, MULTI_LABEL, [labels, kind]),
            (("x", "y"), REGRESSION, REGRESSION, [labels, kind]),
            (None, MULTI_LABEL, MULTI_LABEL, [kind]),
            (None, None, None, []),
        ):
            found = self.there_and_back(given, problem_type)
            self.assertEqual(found, ((given, found_type), files))

    def test_any_string_is_a_label(self):
        for labels in (
            ("a\nb", "c"),
            ("\n", ""),
            ("",),
            ('["a"]',),
            ("[1]",),
            ("[x",),
            ("a\r", " b\u2028", "\ud800", "\u00e9"),
        ):
            found, _ = self.there_and_back(labels, SINGLE_LABEL)
            self.assertEqual(found, (labels, None))

    def test_no_such_problem_type(self):
        folder = self.folder()
        pathlib.Path(os.path.join(folder, "problem_type.txt")).write_text("ranking\n")
        with self.assertRaisesRegex(InputError, "problem_type.txt: .*'ranking'"):
            read_labels(folder)


TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##s"]


BERT_PROCESSING = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
CLS, SEP = (("SpecialToken", name, 0) for name in ("[CLS]", "[SEP]"))
A, B, LAST = ("Sequence", "A", 0), ("Sequence", "B", 1), ("SpecialToken", "[SEP]", 1)


def template(single, pair, cls_id=2):
    both = [
        [{kind: {"id": name, "type_id": number}} for kind, name, number in parts]
        for parts in (single, pair)
    ]
    special = {
        token: {"id": token, "ids": [number], "tokens": [token]}
        for token, number in (("[CLS]", cls_id), ("[SEP]", 3))
    }
    kind = {"type": "TemplateProcessing", "single": both[0], "pair": both[1]}
    return kind | {"special_tokens": special}


def tokenizer_json(**changes):
    """The parts of a tokenizer.json that matter, as transformers writes them."""
    parts = {
        "added_tokens": [{"id": 0, "content": "[PAD]", "special": True}],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": BERT_PROCESSING,
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {token: i for i, token in enumerate(TOKENS)},
        },
    }
    for key, value in changes.items():
        part = parts.get(key)
        is_changed = isinstance(part, dict) and key != "post_processor"
        parts[key] = part | value if is_changed else value
    return parts


class TokenizerFilesTest(FolderCase):
    def folder_of(self, **contents):
        """A new folder; vocab=TOKENS, config={...}, tokenizer={...}."""
        folder = self.folder()
        if "vocab" in contents:
            Vocabulary(contents.pop("vocab")).save(os.path.join(folder, "vocab.txt"))
        for name, values in contents.items():
            name = {"config": "tokenizer_config"}.get(name, name)
            self.write(f"{folder}/{name}.json", values)
        return folder

    def difference(self, **contents):
        tokenizer = read_tokenizer(self.folder_of(**contents))
        with self.assertRaisesRegex(InputError, "`vocab_file`") as caught:
            tokenizer.require_same()
        self.assertNotIn("\n", str(caught.exception))
        return tokenizer.difference

    def test_what_is_written_is_read(self):
        for do_lower_case in (True, False):
            folder = self.folder()
            write_tokenizer(folder, Vocabulary(TOKENS), do_lower_case)
            path = os.path.join(folder, "vocab.txt")
            expected = (Vocabulary(TOKENS), path, do_lower_case, None, "none")
            self.assertEqual(read_tokenizer(folder), expected)
            text = pathlib.Path(folder, "tokenizer_config.json").read_text()
            settings = json.loads(text)
            self.assertEqual(settings["tokenizer_class"], "BertTokenizer")
            self.assertEqual(settings["do_lower_case"], do_lower_case)
            self.assertNotIn("segmenter", settings)

    def test_a_segmenter(self):
        folder = self.folder()
        self.assertIsNone(read_tokenizer(folder).segmenter)
        write_tokenizer(folder, Vocabulary(TOKENS), True, segmenter="icu")
        self.assertEqual(read_tokenizer(folder).segmenter, "icu")
        self.assertTrue(read_tokenizer(folder).has_segmenter)
        path = pathlib.Path(folder, "tokenizer_config.json")
        path.write_text(json.dumps({"segmenter": "mecab"}))
        with self.assertRaisesRegex(InputError, "config.json: `segmenter` .*'mecab'"):
            read_tokenizer(folder)

    def test_the_tokenizers_library_gives_the_same_ids(self):
        words = [*TOKENS, "caf", "##\u00e9", "cafe", "\u4e2d", "!", "a", "##a", "CAT"]
        texts = [
            "The caf\u00e9s!",
            "caf\u00e9 \u4e2dthe",
            "a" * 150,
            "a" * 201,
            "CAT zzz",
        ]
        for do_lower_case in (True, False):
            folder = self.folder()
            write_tokenizer_json(folder, Vocabulary(words), do_lower_case)
            theirs = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
            ours = WordPieceTokenizer(Vocabulary(words), do_lower_case=do_lower_case)
            for text in texts:
                ids = theirs.encode(text, add_special_tokens=False).ids
                self.assertEqual(ids, ours.encode(text))
            self.assertEqual(
                theirs.encode("the", "a").ids, [2, 5, 3, words.index("a"), 3]
            )
            read = read_tokenizer(folder)
            read.require_same()
            self.assertEqual(read.do_lower_case, do_lower_case)

    def test_a_folder_with_tokenizer_json_alone(self):
        for lowercase in (True, False):
            folder = self.folder_of(
                tokenizer=tokenizer_json(normalizer={"lowercase": lowercase})
            )
            tokenizer = read_tokenizer(folder)
            self.assertEqual(tokenizer.vocabulary.tokens, tuple(TOKENS))
            self.assertEqual(tokenizer.path, os.path.join(folder, "tokenizer.json"))
            self.assertEqual(tokenizer.do_lower_case, lowercase)
            tokenizer.require_same()

    def test_all_three_files_agree(self):
        config = {
            "do_lower_case": True,
            "strip_accents": None,
            "tokenizer_class": "BertTokenizerFast",
            "mask_token": {"content": "[MASK]", "lstrip": False},
        }
        folder = self.folder_of(vocab=TOKENS, config=config, tokenizer=tokenizer_json())
        tokenizer = read_tokenizer(folder)
        self.assertEqual(tokenizer.path, os.path.join(folder, "vocab.txt"))
        tokenizer.require_same()

    def test_two_vocabularies_that_differ_are_both_named(self):
        folder = self.folder_of(vocab=[*TOKENS[:-1], "##x"], tokenizer=tokenizer_json())
        with self.assertRaisesRegex(InputError, "tokenizer.json .*vocab.txt"):
            read_tokenizer(folder)

    def test_settings_that_the_original_does_not_have(self):
        for config, named in (
            ({"tokenize_chinese_chars": False}, "tokenize_chinese_chars=false"),
            ({"do_basic_tokenize": False}, "do_basic_tokenize=false"),
            ({"do_lower_case": True, "strip_accents": False}, "strip_accents=false"),
            ({"do_lower_case": False, "strip_accents": True}, "strip_accents=true"),
            ({"tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTokenizer"),
            ({"tokenizer_class": "\ud800"}, '"\\ud800"'),
            ({"mask_token": "<mask>"}, "mask_token"),
            ({"padding_side": "left"}, 'padding_side="left"'),
            ({"truncation_side": "left"}, 'truncation_side="left"'),
        ):
            difference = self.difference(vocab=TOKENS, config=config)
            self.assertIn("tokenizer_config.json", difference)
            self.assertIn(named, difference)
        for changes, named in (
            ({"normalizer": {"type": "Sequence"}}, "normalizer.type"),
            ({"normalizer": {"clean_text": False}}, "normalizer.clean_text=false"),
            ({"normalizer": {"strip_accents": False}}, "strip_accents=false"),
            ({"model": {"continuing_subword_prefix": "@"}}, "subword_prefix"),
            ({"model": {"type": "Unigram"}}, "model.type"),
            ({"pre_tokenizer": {"type": "Whitespace"}}, "BertPreTokenizer"),
            ({"model": {"max_input_chars_per_word": 20}}, "chars_per_word=20"),
            ({"padding": {"direction": "Left"}}, 'padding_side="left"'),
            ({"truncation": {"direction": "Left"}}, 'truncation_side="left"'),
            ({"added_tokens": [{"id": 7, "content": "<x>"}]}, "'<x>'"),
        ):
            difference = self.difference(tokenizer=tokenizer_json(**changes))
            self.assertIn("tokenizer.json", difference)
            self.assertIn(named, difference)

    def test_post_processors_that_are_berts(self):
        """Their ids and types are the library's, or the folder is refused."""
        single, pair = (CLS, A, SEP), (CLS, A, SEP, B, LAST)
        roberta = {**BERT_PROCESSING, "type": "RobertaProcessing"}
        roberta |= {"trim_offsets": True, "add_prefix_space": False}
        for post, is_berts in (
            (BERT_PROCESSING, True),
            (template(single, pair), True),
            (None, False),
            (roberta, False),
            (BERT_PROCESSING | {"cls": ["[CLS]", 4]}, False),
            (template((A, SEP), pair), False),
            (template(single, (CLS, A, SEP, SEP, B, LAST)), False),
            (template(single, (CLS, A, SEP, ("Sequence", "B", 0), SEP)), False),
            (template(single, pair, cls_id=4), False),
        ):
            content = {**tokenizer_json(post_processor=post), "version": "1.0"}
            content |= dict.fromkeys(("truncation", "padding", "decoder"))
            content["added_tokens"] = []
            folder = self.folder_of(tokenizer=content)
            theirs = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
            found = [theirs.encode("thes"), theirs.encode("the", "thes")]
            ours = [[[2, 5, 6, 3], [0] * 4], [[2, 5, 3, 5, 6, 3], [0] * 3 + [1] * 3]]
            self.assertEqual([[x.ids, x.type_ids] for x in found] == ours, is_berts)
            tokenizer = read_tokenizer(folder)
            if is_berts:
                tokenizer.require_same()
            else:
                self.assertIn("`post_processor` does not make", tokenizer.difference)

    def test_the_sides_of_the_config_count(self):
        content = tokenizer_json(padding={"direction": "Left", "strategy": "Fixed"})
        config = {"padding_side": "right", "truncation_side": "right"}
        read_tokenizer(self.folder_of(tokenizer=content, config=config)).require_same()

    def test_a_cased_tokenizer_that_sentence_transformers_lowers(self):
        """It puts a lower-casing in front, unless the tokenizer has one."""
        lower = {"do_lower_case": True, "max_seq_length": 9}
        cased = [*TOKENS, "The"]
        for vocab, config in ((TOKENS, {"do_lower_case": False}), (cased, {})):
            contents = {"vocab": vocab, "config": config, "sentence_bert_config": lower}
            difference = self.difference(**contents)
            self.assertIn("bert_config.json sets do_lower_case=true", difference)
        for vocab, config, own in (
            (TOKENS, {}, lower),
            (cased, {"do_lower_case": True}, lower),
            (cased, {"do_lower_case": False}, {"do_lower_case": False}),
            (cased, {"do_lower_case": False}, {}),
        ):
            contents = {"vocab": vocab, "config": config, "sentence_bert_config": own}
            read_tokenizer(self.folder_of(**contents)).require_same()

    def test_words_that_were_added_are_named(self):
        of_config = (
            {
                "added_tokens_decoder": {
                    "0": {"content": "[PAD]"},
                    "7": {"content": "x1"},
                }
            },
            {"additional_special_tokens": ["[MASK]", "x1"]},
            {"additional_special_tokens": [{"content": "x1", "lstrip": False}]},
            {"extra_special_tokens": {"image_token": "x1"}},
            {"never_split": ["x1"]},
        )
        for contents in (
            {"added_tokens": {"x1": 7}},
            *({"config": values} for values in of_config),
            *({"special_tokens_map": values} for values in of_config),
            {"tokenizer": tokenizer_json(added_tokens=[{"id": 7, "content": "x1"}])},
        ):
            difference = self.difference(vocab=TOKENS, **contents)
            self.assertIn(" adds words that are never split: 'x1'.", difference)
            (name,) = contents
            self.assertIn(f"{name}.json adds", difference)
        difference = self.difference(
            vocab=TOKENS, special_tokens_map={"sep_token": "</s>"}
        )
        self.assertIn("special_tokens_map.json sets sep_token", difference)
        specials = {"unk_token": "[UNK]", "mask_token": {"content": "[MASK]"}}
        decoder = {"4": {"content": "[MASK]", "special": True}}
        read_tokenizer(
            self.folder_of(
                vocab=TOKENS,
                special_tokens_map=specials,
                added_tokens={"[MASK]": 4},
                config={"added_tokens_decoder": decoder},
            )
        ).require_same()

    def test_casings_that_contradict_are_both_named(self):
        difference = self.difference(
            config={"do_lower_case": False}, tokenizer=tokenizer_json()
        )
        self.assertIn("normalizer.lowercase=true", difference)

    def test_damaged_files_are_one_line(self):
        for contents, message in (
            ({"config": "{"}, "not valid JSON"),
            ({"config": "[]"}, "one JSON object"),
            ({"config": {"do_lower_case": "yes"}}, "true or false"),
            ({"tokenizer": "[]"}, "one JSON object"),
            ({"tokenizer": tokenizer_json(model={"vocab": ["a"]})}, "map tokens"),
            ({"tokenizer": tokenizer_json(model={"vocab": {"a": 1}})}, "from 0 on"),
            ({"tokenizer": tokenizer_json(model={"vocab": {"a\nb": 0}})}, "one line"),
            ({"tokenizer": tokenizer_json(model={"vocab": {"\ud800": 0}})}, "surrogat"),
        ):
            with self.assertRaisesRegex(InputError, message):
                read_tokenizer(self.folder_of(**contents))
        without = read_tokenizer(
            self.folder_of(tokenizer=tokenizer_json(added_tokens=3))
        )
        self.assertIsNone(without.difference)
