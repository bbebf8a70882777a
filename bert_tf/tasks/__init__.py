"""One module a family of tasks; each builds `bert_tf.task.Task` records."""
