"""What the flags of `--hf` may be, where torch need not be imported to know it."""

TRAIN = ("full", "lora", "qlora")
OPTIMIZERS = ("adamw", "adam", "sgd", "adagrad", "adafactor", "adamw8bit", "sgd8bit")
