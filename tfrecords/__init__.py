"""Scripts that turn raw data into TFRecords; `bert_tf.tfrecords` in the wheel."""
