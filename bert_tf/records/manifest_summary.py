"""A manifest in a few lines."""

from bert_tf.records.manifest import Manifest

_PAIRS = {
    "nsp": "next sentence pairs",
    "sop": "sentence order pairs",
    "none": "no sentence pairs",
}
_MOST_SOURCES = 3


def manifest_lines(manifest: Manifest) -> list[str]:
    """How a set was made and what it consists of, for people."""
    num_bytes = sum(source.num_bytes for source in manifest.source_files)
    names = [source.path for source in manifest.source_files[:_MOST_SOURCES]]
    if len(manifest.source_files) > len(names):
        names.append("...")
    casing = "uncased" if manifest.do_lower_case else "cased"
    unit = "whole words" if manifest.do_whole_word_mask else "pieces"
    state = "complete" if manifest.complete else "NOT COMPLETE"
    plural = "s" * (len(manifest.shards) > 1)
    lines = [
        manifest.path,
        f"  {state}: {manifest.num_records:,} records,"
        f" {len(manifest.shards):,} file{plural};"
        f" {manifest.max_seq_length} tokens, {manifest.max_predictions_per_seq}"
        " predictions",
        f"  {manifest.vocab_size:,} entries in the vocabulary, {casing};"
        f" {manifest.masking} masking of {manifest.masked_lm_prob:g} of the tokens,"
        f" {unit}",
        f"  {_PAIRS.get(manifest.pairs, manifest.pairs)},"
        f" {manifest.nsp_labels} labels; short_seq_prob {manifest.short_seq_prob:g},"
        f" dupe_factor {manifest.dupe_factor}, random_seed {manifest.random_seed}",
        f"  source files: {len(manifest.source_files):,} of {num_bytes:,} bytes in all"
        f" ({manifest.input_format}): {', '.join(names)}",
    ]
    if manifest.packed:
        lines.append(
            f"  packed: up to {manifest.max_sequences_per_row} sequences a record,"
            f" of up to {manifest.max_sequence_length} tokens and"
            f" {manifest.max_predictions_per_sequence} predictions, from"
            f" {len(manifest.record_files):,} record files"
        )
    preparation = []
    if manifest.split_sentences:
        preparation.append(
            f"sentences split by the rules of {manifest.split_sentences}"
        )
    if manifest.deduplicate != "none":
        preparation.append(f"duplicate {manifest.deduplicate} dropped")
    if manifest.min_document_tokens:
        preparation.append(
            f"documents under {manifest.min_document_tokens} tokens dropped"
        )
    if preparation:
        lines.append(f"  {'; '.join(preparation)}")
    return lines
