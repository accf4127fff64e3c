# ruff: noqa: E501 (commands in one line)
"""PyTorch's own examples, and a tutorial's."""

from __future__ import annotations

from programs.catalogue.program import Program, mnist

_EXAMPLES = "pytorch/examples"
_TUTORIAL = "yunjey/pytorch-tutorial"

EXAMPLES = [
    Program("mnist", _EXAMPLES, "mnist", "main.py", mnist()),
    Program("mnist_rnn", _EXAMPLES, "mnist_rnn", "main.py -- --accel", mnist()),
    Program("mnist_forward_forward", _EXAMPLES, "mnist_forward_forward", "main.py", mnist("data")),
    Program("siamese_network", _EXAMPLES, "siamese_network", "main.py", mnist()),
    Program("vae", _EXAMPLES, "vae", "main.py", mnist()),
    Program(
        "imagenet_resnet50", _EXAMPLES, "imagenet", "main.py -- --dummy -a resnet50 -b 64 -j 0"
    ),
    Program(
        "imagenet_ddp",
        _EXAMPLES,
        "imagenet",
        "--world-size 4 main.py -- --dummy -a resnet18 -b 32 -j 0 --multiprocessing-distributed"
        " --dist-url tcp://127.0.0.1:29510 --world-size 1 --rank 0",
    ),
    Program("dcgan", _EXAMPLES, "dcgan", "main.py -- --dataset fake --accel --workers 0"),
    Program(
        "word_language_model_lstm",
        _EXAMPLES,
        "word_language_model",
        "main.py -- --accel --data made",
        {"made": "wikitext"},
    ),
    Program(
        "word_language_model_transformer",
        _EXAMPLES,
        "word_language_model",
        "main.py -- --accel --model Transformer --data made",
        {"made": "wikitext"},
    ),
    Program(
        "super_resolution",
        _EXAMPLES,
        "super_resolution",
        "main.py -- --upscale_factor 3 --accel --nEpochs 2 --threads 0",
        {"dataset": "bsds300"},
    ),
    Program(
        "fast_neural_style",
        _EXAMPLES,
        "fast_neural_style",
        "neural_style/neural_style.py -- train --dataset made --save-model-dir . --accel",
        {"made": "images"},
    ),
    Program("gat", _EXAMPLES, "gat", "main.py", {"cora": "cora"}),
    Program("ddp", _EXAMPLES, "distributed/ddp", "torchrun --nproc_per_node=4 example.py"),
    Program(
        "ddp_tutorial",
        _EXAMPLES,
        "distributed/ddp-tutorial-series",
        "torchrun --nproc_per_node=4 multigpu_torchrun.py 3 1",
    ),
    Program("fsdp2", _EXAMPLES, "distributed/FSDP2", "torchrun --nproc_per_node=4 example.py"),
    Program(
        "tensor_parallel",
        _EXAMPLES,
        "distributed/tensor_parallelism",
        "torchrun --nproc_per_node=4 tensor_parallel_example.py",
    ),
    Program(
        "sequence_parallel",
        _EXAMPLES,
        "distributed/tensor_parallelism",
        "torchrun --nproc_per_node=4 sequence_parallel_example.py",
    ),
    Program(
        "fsdp_with_tensor_parallel",
        _EXAMPLES,
        "distributed/tensor_parallelism",
        "torchrun --nproc_per_node=4 fsdp_tp_example.py",
    ),
    Program(
        "tutorial_resnet",
        _TUTORIAL,
        "tutorials/02-intermediate/deep_residual_network",
        "main.py",
        {"../../data": "cifar10"},
    ),
    Program(
        "tutorial_bidirectional_lstm",
        _TUTORIAL,
        "tutorials/02-intermediate/bidirectional_recurrent_neural_network",
        "main.py",
        mnist("../../data"),
    ),
    Program(
        "mingpt_ddp",
        _EXAMPLES,
        "distributed/minGPT-ddp/mingpt",
        "torchrun --standalone --nproc_per_node=4 main.py data_config.path=data/input.txt trainer_config.data_loader_workers=0",
    ),
    Program("mnist_hogwild", _EXAMPLES, "mnist_hogwild", "main.py -- --cuda", mnist()),
]
