# ruff: noqa: E501 (commands in one line)
"""Pictures: what is on them, and where."""

from __future__ import annotations

from programs.catalogue.program import Program

_DISTILLATION = "HobbitLong/RepDistiller"

# For tensorboard_logger, whose messages were made for an older protobuf.
_OLD_MESSAGES = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}

PICTURES = [
    Program("pytorch_cifar", "kuangliu/pytorch-cifar", ".", "main.py", {"data": "cifar10"}),
    Program(
        "pytorch_cifar100",
        "weiaicunzai/pytorch-cifar100",
        ".",
        "train.py -- -net resnet50 -gpu",
        {"data": "cifar100"},
    ),
    Program("unet", "milesial/Pytorch-UNet", ".", "train.py -- --amp -b 2 -e 1", {"data": "masks"}),
    Program(
        "vit_decorrelated",
        "lucidrains/vit-pytorch",
        ".",
        "train_vit_decorr.py",
        {"data": "cifar100"},
    ),
    Program(
        "dino_vit_small",
        "facebookresearch/dino",
        ".",
        "torchrun --nproc_per_node=8 main_dino.py --data_path made --num_workers 0"
        " --batch_size_per_gpu 8",
        {"made": "images", "made_hub/hub/facebookresearch_xcit_main": "hub"},
        environment={"TORCH_HOME": "made_hub"},
    ),
    Program(
        "timm_train",
        "huggingface/pytorch-image-models",
        ".",
        "train.py -- made --model vit_small_patch16_224 -b 32 --num-classes 8 --workers 1 --amp"
        " --opt adamw --epochs 2",
        {"made": "image_sets"},
    ),
    Program(
        "torchvision_classification",
        "pytorch/vision",
        "references/classification",
        "train.py -- --data-path made --model resnet50 --batch-size 16 --workers 0 --epochs 2 --amp",
        {"made": "image_sets"},
    ),
    Program(
        "torchvision_mask_rcnn",
        "pytorch/vision",
        "references/detection",
        "train.py -- --dataset coco --data-path made --model maskrcnn_resnet50_fpn --epochs 2"
        " --workers 0 --weights-backbone ResNet50_Weights.IMAGENET1K_V1",
        {"made": "coco"},
    ),
    Program(
        "timm_compiled",
        "huggingface/pytorch-image-models",
        ".",
        "train.py -- made --model vit_small_patch16_224 -b 32 --num-classes 8 --workers 1 --amp"
        " --opt adamw --epochs 2 --torchcompile",
        {"made": "image_sets"},
    ),
    Program(
        "resnet_cifar10",
        "akamaster/pytorch_resnet_cifar10",
        ".",
        "trainer.py -- --arch=resnet20 --save-dir=save_resnet20",
        {"data": "cifar10"},
    ),
    Program(
        "sam_wide_resnet",
        "davda54/sam",
        "example",
        "train.py -- --threads 0",
        {"data": "cifar10", "cifar": "cifar10"},
    ),
    Program(
        "fast_adversarial_mnist",
        "locuslab/fast_adversarial",
        "MNIST",
        "train_mnist.py",
        {"../mnist-data": "mnist"},
    ),
    Program(
        "schedule_free_mnist",
        "facebookresearch/schedule_free",
        "examples/mnist",
        "main.py",
        {"../data": "mnist"},
    ),
    Program(
        "simclr",
        "sthalles/SimCLR",
        ".",
        "run.py -- -dataset-name cifar10 -j 0 --fp16-precision",
        {"datasets": "cifar10"},
    ),
    Program(
        "open_clip_rn50",
        "mlfoundations/open_clip",
        "src",
        "-m open_clip_train.main -- --dataset-type synthetic --train-num-samples 512 --batch-size 64 --model RN50 --workers 0 --epochs 1 --precision amp",
    ),
    Program(
        "barlow_twins",
        "facebookresearch/barlowtwins",
        ".",
        "--devices 2 main.py -- made --batch-size 64 --workers 0 --checkpoint-dir out",
        {"made/train": "images"},
    ),
    Program(
        "distillation_teacher",
        _DISTILLATION,
        ".",
        "train_teacher.py -- --model resnet32x4 --num_workers 0",
        {"data": "cifar100"},
        environment=_OLD_MESSAGES,
    ),
    Program(
        "distillation_student",
        _DISTILLATION,
        ".",
        "train_student.py -- --path_t save/models/resnet32x4_vanilla/ckpt_epoch_240.pth"
        " --distill similarity --model_s resnet8x4 -r 1 -a 1 -b 3000 --num_workers 0",
        {"data": "cifar100", "save/models/resnet32x4_vanilla": "teacher"},
        environment=_OLD_MESSAGES,
    ),
    Program(
        "pointnet2",
        "yanx27/Pointnet_Pointnet2_pytorch",
        ".",
        "train_classification.py -- --model pointnet2_cls_ssg --log_dir made",
        {"data/modelnet40_normal_resampled": "modelnet"},
    ),
    Program(
        "fixmatch",
        "kekmodel/FixMatch-pytorch",
        ".",
        "train.py -- --dataset cifar10 --num-labeled 40 --arch wideresnet --batch-size 64 --lr 0.03"
        " --expand-labels --num-workers 0 --out out",
        {"data": "cifar10"},
    ),
    Program(
        "simsiam",
        "facebookresearch/simsiam",
        ".",
        "--devices 2 main_simsiam.py -- -a resnet50 --fix-pred-lr --multiprocessing-distributed"
        " --dist-url tcp://127.0.0.1:29511 --world-size 1 --rank 0 -b 32 -j 0 made",
        {"made/train": "images"},
    ),
    Program(
        "yolov5s",
        "ultralytics/yolov5",
        ".",
        "train.py -- --data made/made.yaml --weights '' --cfg models/yolov5s.yaml --img 640"
        " --batch-size 16 --epochs 2 --workers 0 --noplots",
        {"made": "boxes", "yolov5n.pt": "yolo_weights"},
        environment={"YOLOV5_CONFIG_DIR": "made"},
    ),
    Program(
        "torchvision_segmentation",
        "pytorch/vision",
        "references/segmentation",
        "train.py -- --dataset coco --data-path made --model fcn_resnet50 --epochs 2 -b 4 -j 0 --aux-loss --weights-backbone ResNet50_Weights.IMAGENET1K_V1",
        {"made": "coco"},
    ),
    Program(
        "torchvision_retinanet",
        "pytorch/vision",
        "references/detection",
        "train.py -- --dataset coco --data-path made --model retinanet_resnet50_fpn --epochs 2 --workers 0 --weights-backbone ResNet50_Weights.IMAGENET1K_V1 --lr 0.01",
        {"made": "coco"},
    ),
    Program(
        "keras_mnist",
        "keras-team/keras-io",
        "examples/vision",
        "mnist_convnet.py",
        {"made/datasets/mnist.npz": "mnist_arrays"},
        environment={"KERAS_BACKEND": "torch", "KERAS_HOME": "made"},
    ),
    Program(
        "torchvision_similarity",
        "pytorch/vision",
        "references/similarity",
        "train.py -- --dataset-dir made --epochs 2 --workers 0 --save-dir out",
        {"made": "fashion"},
    ),
]
