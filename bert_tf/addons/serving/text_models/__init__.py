"""From texts to predictions: a checkpoint of any format, opened for use.

    model = bert_tf.load("/tmp/mrpc_output")
    model.predict(["He said so."], ["So he said."])[0].label

What a checkpoint can do depends on its head:

    classifier       TextClassifier      predict, explain
    masked LM        MaskFiller          fill
    span (SQuAD)     QuestionAnswerer    answer, explain
    choices (SWAG)   ChoiceModel         choose
    tagging          WordTagger          tag, explain
    any, or none     TextModel           embed

It computes with ONNX Runtime where that is installed (`pip install 'bert-tf[serve]'`)
and there is no accelerator, else with Keras: `runtime`.

Lengths, windows and thresholds are the run's own, as in its reading.json, so that
predictions are those of the commands. Each method takes a list of texts, or one str as
a list of one, makes batches of similar length, and returns one result for each text;
`explain` is for one text, and computes with Keras.

Shapes: N texts, C outputs, H hidden.
"""
