"""TFRecords: the content of a record, and how records are made and read.

spec                what a record holds: writes, parses, checks and explains it
writing, manifest   files of records, complete or absent, and their manifest
tokenized_corpus, record_sets   text to ids on disk, ids to record files
pretraining_input, pipeline   record files to batches for pre-training
dynamic_masking     their masks, if the records have none
batching            a task's examples as records, and batches of similar length
statistics          what is in records
"""
