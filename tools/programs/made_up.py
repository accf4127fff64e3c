# mypy: disable-error-code="import-not-found, import-untyped"
"""Made-up data in the formats that programs read. `python made_up.py KIND FOLDER`."""

from __future__ import annotations

import gzip
import itertools
import json
import pickle
import random
import string
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

KINDS: dict[str, Callable[[Path], None]] = {}
_WORDS = [f"word{n}" for n in range(2000)]


def kind(make: Callable[[Path], None]) -> Callable[[Path], None]:
    KINDS[make.__name__] = make
    return make


def _text(words: int) -> str:
    choose = random.Random(0).choice
    lines = (" ".join(choose(_WORDS) for _ in range(12)) for _ in range(words // 12))
    return "\n".join(lines) + "\n"


def _image(path: Path, width: int, height: int, mode: str = "RGB") -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.effect_noise((width, height), 64).convert(mode).save(path)


@kind
def mnist(folder: Path) -> None:
    _mnist(folder, 2048, 1024)


@kind
def fashion(folder: Path) -> None:
    """Clothes, as many as there are: a program counts on so many of each kind."""
    _mnist(folder, 60000, 10000)
    (folder / "MNIST").rename(folder / "FashionMNIST")


@kind
def mnist_arrays(file: Path) -> None:
    """As Keras downloads it, a tenth as large."""
    draw = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for name, count in (("train", 6000), ("test", 1000)):
        made[f"x_{name}"] = draw.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        made[f"y_{name}"] = draw.integers(0, 10, count, dtype=np.uint8)
    np.savez(file, **made)


def _json_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)))


@kind
def preferences(folder: Path) -> None:
    """Questions, each with an answer that was liked and one that was not."""
    row = {"prompt": _text(24), "chosen": _text(240), "rejected": _text(240)}
    _json_lines(folder / "train.jsonl", [row] * 256)


@kind
def prompts(folder: Path) -> None:
    """Questions of a conversation."""
    row = {"prompt": [{"role": "user", "content": _text(24)}]}
    _json_lines(folder / "train.jsonl", [row] * 256)


@kind
def sentence_pairs(folder: Path) -> None:
    """Pairs of sentences, and how alike they are from 0 to 1."""
    for split in ("train", "validation", "test"):
        rows = [
            {"sentence1": _text(12), "sentence2": _text(12), "score": i % 5 / 4} for i in range(512)
        ]
        _json_lines(folder / f"{split}.jsonl", rows)


@kind
def mnist_whole(folder: Path) -> None:
    """For programs that count on its size."""
    _mnist(folder, 60000, 10000)


def _mnist(folder: Path, training: int, test: int) -> None:
    """As torchvision keeps it under its root."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, count in (("train", training), ("t10k", test)):
        images = np.random.default_rng(0).integers(0, 256, (count, 28, 28), dtype=np.uint8)
        head = struct.pack(">IIII", 2051, count, 28, 28)
        (raw / f"{name}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        labels = bytes(n % 10 for n in range(count))
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels)


def _cifar_batch(path: Path, count: int, **labels: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = np.random.default_rng(0).integers(0, 256, (count, 3072), dtype=np.uint8)
    path.write_bytes(pickle.dumps({"data": data, **labels}))


@kind
def cifar10(folder: Path) -> None:
    names = [f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"]
    for name in names:
        _cifar_batch(
            folder / "cifar-10-batches-py" / name, 512, labels=[n % 10 for n in range(512)]
        )


@kind
def cifar100(folder: Path) -> None:
    labels = [n % 100 for n in range(1024)]
    for name in ("train", "test"):
        _cifar_batch(folder / "cifar-100-python" / name, 1024, fine_labels=labels)


@kind
def images(folder: Path) -> None:
    """A folder for each of eight classes, each with ten."""
    for number in range(80):
        _image(folder / f"class{number % 8}" / f"{number}.png", 320, 280)


@kind
def image_sets(folder: Path) -> None:
    for part in ("train", "val"):
        images(folder / part)


@kind
def flat_images(folder: Path) -> None:
    for number in range(48):
        _image(folder / f"{number}.png", 320, 280)


@kind
def pairs(folder: Path) -> None:
    """Two pictures side by side, as pix2pix reads them."""
    for part in ("train", "val", "test"):
        for number in range(16):
            _image(folder / part / f"{number}.jpg", 512, 256)


@kind
def two_domains(folder: Path) -> None:
    for part in ("train/A", "train/B", "test/A", "test/B"):
        for number in range(16):
            _image(folder / part / f"{number}.jpg", 256, 256)


@kind
def coco(folder: Path) -> None:
    """Pictures with four boxes each, and their outlines."""
    import json

    for split, count in (("train", 16), ("val", 8)):
        pictures: list[dict[str, Any]] = []
        things: list[dict[str, Any]] = []
        for number in range(1, count + 1):
            name = f"{number:012}.jpg"
            _image(folder / f"{split}2017" / name, 640, 480)
            pictures.append({"id": number, "file_name": name, "width": 640, "height": 480})
            for x in (40, 180, 320, 460):
                corners = [x, 60, x + 120, 60, x + 120, 300, x, 300]
                shape = {"bbox": [x, 60, 120, 240], "area": 28800, "segmentation": [corners]}
                what = {"image_id": number, "category_id": 1, "iscrowd": 0}
                things.append({"id": len(things) + 1, **what, **shape})
        told = {"images": pictures, "annotations": things, "categories": [{"id": 1, "name": "box"}]}
        (folder / "annotations").mkdir(exist_ok=True)
        (folder / "annotations" / f"instances_{split}2017.json").write_text(json.dumps(told))


@kind
def bsds300(folder: Path) -> None:
    for part, count in (("train", 40), ("test", 20)):
        for number in range(count):
            size = (481, 321) if number % 2 else (321, 481)
            _image(folder / "BSDS300" / "images" / part / f"{number}.jpg", *size)


@kind
def masks(folder: Path) -> None:
    """Pictures and what is to be found in them."""
    from PIL import Image

    for number in range(30):
        _image(folder / "imgs" / f"{number}.jpg", 959, 640)
        (folder / "masks").mkdir(parents=True, exist_ok=True)
        half = np.zeros((640, 959), dtype=np.uint8)
        half[:, 480:] = 255
        Image.fromarray(half).save(folder / "masks" / f"{number}_mask.gif")


@kind
def wikitext(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "valid", "test"):
        (folder / f"{name}.txt").write_text(_text(60_000))


@kind
def c4(folder: Path) -> None:
    """Long documents, a line each."""
    import json

    folder.mkdir(parents=True, exist_ok=True)
    document = json.dumps({"text": _text(3_000)})
    (folder / "data.json").write_text("\n".join([document] * 400))


@kind
def wikitext_demo(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "wikitext-2.txt").write_text(_text(400_000))


@kind
def text(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "input.txt").write_text(_text(100_000) + string.printable)


@kind
def texts(folder: Path) -> None:
    """Files of text, and a tokenizer beside them that begins texts with a token."""
    import json

    tokenizer(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    begins = settings | {"bos_token": "[CLS]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(begins))
    for number in range(4):
        (folder / f"{number}.txt").write_text(_text(180_000))


@kind
def enwik8(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "enwik8.gz").write_bytes(gzip.compress(bytes(range(32, 122)) * 1_100_000, 1))


@kind
def tokens(folder: Path) -> None:
    """nanoGPT's: two bytes for each."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "val"):
        numbers = np.random.default_rng(0).integers(0, 65, 400_000).astype(np.uint16)
        (folder / f"{name}.bin").write_bytes(numbers.tobytes())


@kind
def token_files(folder: Path) -> None:
    """llama2.c's: files of two bytes for each token of 4096."""
    folder.mkdir(parents=True)
    for name in ("data00.bin", "data01.bin"):
        numbers = np.random.default_rng(0).integers(0, 4096, 1_000_000, dtype=np.uint16)
        (folder / name).write_bytes(numbers.tobytes())


@kind
def blender(folder: Path) -> None:
    """Pictures of a scene and where the camera stood, as NeRF's synthetic scenes have them."""
    for part in ("train", "val", "test"):
        for n in range(8):
            _image(folder / part / f"r_{n}.png", 200, 200, "RGBA")
        frames = [
            {"file_path": f"./{part}/r_{n}", "transform_matrix": np.eye(4).tolist()}
            for n in range(8)
        ]
        scene = {"camera_angle_x": 0.69, "frames": frames}
        (folder / f"transforms_{part}.json").write_text(json.dumps(scene))


@kind
def token_shards(folder: Path) -> None:
    """llm.c's: a head of 256 numbers, then two bytes for each token."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "val"):
        numbers = np.random.default_rng(0).integers(0, 50257, 2_000_000).astype(np.uint16)
        head = np.zeros(256, dtype=np.int32)
        head[:3] = 20240520, 1, len(numbers)
        (folder / f"{name}.bin").write_bytes(head.tobytes() + numbers.tobytes())


@kind
def cora(folder: Path) -> None:
    """As many papers, words and citations as the real one has."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = np.random.default_rng(0)
    with (folder / "cora.content").open("w") as file:
        for paper in range(2708):
            words = chosen.integers(0, 2, 1433)
            file.write(f"{paper}\t" + "\t".join(map(str, words)) + f"\tclass{paper % 7}\n")
    with (folder / "cora.cites").open("w") as file:
        for one, other in chosen.integers(0, 2708, (5429, 2)):
            file.write(f"{one}\t{other}\n")


_TURNS = "{% for message in messages %}{{ message['role'] }} {{ message['content'] }} {% endfor %}"


@kind
def tokenizer(folder: Path) -> None:
    """A Hugging Face tokenizer of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "eos_token": "[EOS]"}
    special |= {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    names = {word: place for place, word in enumerate([*special.values(), *_WORDS])}
    words = Tokenizer(models.WordLevel(names, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=words, model_max_length=1024, chat_template=_TURNS, **special
    ).save_pretrained(folder)


@kind
def chat(folder: Path) -> None:
    """Conversations, preferences, and a small model of the Llama kind with its tokenizer."""
    import json

    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"text": line} for line in _text(20_000).splitlines()]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = {"hidden_size": 1024, "num_hidden_layers": 8, "intermediate_size": 2816}
    settings |= {"num_attention_heads": 16, "vocab_size": 32000, "max_position_embeddings": 2048}
    config = transformers.LlamaConfig(**settings, bos_token_id=2, eos_token_id=2, pad_token_id=1)
    transformers.LlamaForCausalLM(config).save_pretrained(folder / "model")
    tokenizer(folder / "model")


@kind
def instructions(folder: Path) -> None:
    """Questions with answers, and the same model."""
    import json

    chat(folder)
    rows = [{"instruction": line, "output": line} for line in _text(9_000).splitlines()]
    (folder / "instructions").mkdir()
    (folder / "instructions" / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))


@kind
def glue(folder: Path) -> None:
    """bert-base-cased's shapes with fresh weights, and one of GLUE's tasks."""
    import json

    import transformers

    config = transformers.BertConfig(vocab_size=28996, num_labels=2)
    transformers.BertForSequenceClassification(config).save_pretrained(folder / "bert-base-cased")
    tokenizer(folder / "bert-base-cased")
    task = folder / "nyu-mll" / "glue"
    task.mkdir(parents=True)
    lines = _text(9_000).splitlines()
    for part in ("train", "validation"):
        rows = [
            {"sentence1": one, "sentence2": two, "label": place % 2, "idx": place}
            for place, (one, two) in enumerate(itertools.pairwise(lines))
        ]
        (task / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (task / "README.md").write_text(_GLUE_CARD)


@kind
def distilroberta(folder: Path) -> None:
    """Its shapes with fresh weights."""
    import transformers

    config = transformers.RobertaConfig(
        vocab_size=50265, num_hidden_layers=6, max_position_embeddings=514, type_vocab_size=1
    )
    transformers.RobertaModel(config).save_pretrained(folder)
    tokenizer(folder)


_GLUE_CARD = """---
configs:
- config_name: mrpc
  data_files:
  - split: train
    path: train.jsonl
  - split: validation
    path: validation.jsonl
---
"""


@kind
def pets(folder: Path) -> None:
    """Pictures whose names say what is in them."""
    for number in range(160):
        _image(folder / f"breed{number % 8}_{number}.jpg", 320, 280)


@kind
def planetoid(folder: Path) -> None:
    """As many papers, words and classes as Cora has, in the files that PyG downloads."""
    from scipy.sparse import csr_matrix

    folder.mkdir(parents=True)
    chosen = np.random.default_rng(0)
    words = (chosen.random((2708, 1433)) < 0.0127).astype(np.float32)
    classes = np.eye(7, dtype=np.int32)[np.arange(2708) % 7]
    parts = {"x": slice(140), "tx": slice(1708, 2708), "allx": slice(1708)}
    for name, rows in parts.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(csr_matrix(words[rows])))
        label = name.replace("x", "y")
        (folder / f"ind.cora.{label}").write_bytes(pickle.dumps(classes[rows]))
    neighbours = {n: chosen.integers(0, 2708, 4).tolist() for n in range(2708)}
    (folder / "ind.cora.graph").write_bytes(pickle.dumps(neighbours))
    (folder / "ind.cora.test.index").write_text("\n".join(map(str, range(1708, 2708))))


@kind
def nanochat(folder: Path) -> None:
    """Its folder of a tokenizer of 32768 pieces and of text in Parquet files."""
    import pyarrow
    import pyarrow.parquet
    import tiktoken
    import torch

    (folder / "tokenizer").mkdir(parents=True)
    pieces = [bytes([n]) for n in range(256)]
    pieces += [bytes(pair) for pair in itertools.product(range(256), range(127))]
    pieces = pieces[: 32768 - len(_NANOCHAT_SPECIAL)]
    special = {name: len(pieces) + place for place, name in enumerate(_NANOCHAT_SPECIAL)}
    ranks = {piece: place for place, piece in enumerate(pieces)}
    encoding = tiktoken.Encoding(
        "made", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens=special
    )
    (folder / "tokenizer" / "tokenizer.pkl").write_bytes(pickle.dumps(encoding))
    lengths = torch.tensor([len(piece) for piece in pieces] + [0] * len(special))
    torch.save(lengths.int(), folder / "tokenizer" / "token_bytes.pt")
    (folder / "base_data_climbmix").mkdir()
    text = pyarrow.table({"text": _text(400_000).splitlines()})
    for part in range(2):
        place = folder / "base_data_climbmix" / f"shard_{part:05}.parquet"
        pyarrow.parquet.write_table(text, place, row_group_size=1024)


_NANOCHAT_SPECIAL = ["<|bos|>", "<|user_start|>", "<|user_end|>", "<|assistant_start|>"]
_NANOCHAT_SPECIAL += ["<|assistant_end|>", "<|python_start|>", "<|python_end|>"]
_NANOCHAT_SPECIAL += ["<|output_start|>", "<|output_end|>"]


@kind
def gpt2_settings(folder: Path) -> None:
    import transformers

    transformers.GPT2Config().save_pretrained(folder / "gpt2")
    transformers.BertConfig().save_pretrained(folder / "bert")
    tokenizer(folder / "gpt2")
    tokenizer(folder / "bert")
    text(folder)


@kind
def hub(folder: Path) -> None:
    """A repository of torch.hub's without a model in it."""
    folder.mkdir(parents=True)
    (folder / "hubconf.py").write_text("")


@kind
def vae(folder: Path) -> None:
    """Stable Diffusion's autoencoder, with fresh weights."""
    from diffusers import AutoencoderKL

    blocks = {"down_block_types": ["DownEncoderBlock2D"] * 4}
    blocks |= {"up_block_types": ["UpDecoderBlock2D"] * 4}
    model = AutoencoderKL(block_out_channels=[128, 256, 512, 512], layers_per_block=2, **blocks)
    model.save_pretrained(folder)


@kind
def teacher(folder: Path) -> None:
    """RepDistiller's teacher, in its folder for models, with fresh weights."""
    import torch

    sys.path.insert(0, str(folder.parents[2]))
    from models import model_dict

    folder.mkdir(parents=True)
    model = model_dict["resnet32x4"](num_classes=100)
    torch.save({"model": model.state_dict()}, folder / "ckpt_epoch_240.pth")


@kind
def hours(folder: Path) -> None:
    """Seven numbers for each hour of 725 days, as the ETT series have them."""
    import pandas

    folder.mkdir(parents=True)
    columns = ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"]
    numbers = np.random.default_rng(0).normal(size=(17420, 7))
    table = pandas.DataFrame(numbers, columns=columns)
    table.insert(0, "date", pandas.date_range("2016-07-01", periods=17420, freq="h"))
    table.to_csv(folder / "ETTh1.csv", index=False)


@kind
def modelnet(folder: Path) -> None:
    """Points with normals of two of forty shapes."""
    shapes = [f"shape{n}" for n in range(40)]
    for name in shapes[:2]:
        (folder / name).mkdir(parents=True)
    (folder / "modelnet40_shape_names.txt").write_text("\n".join(shapes))
    for part, first, count in (("train", 0, 96), ("test", 96, 48)):
        names = [f"shape{n % 2}_{n:04}" for n in range(first, first + count)]
        (folder / f"modelnet40_{part}.txt").write_text("\n".join(names))
        for name in names:
            points = np.random.default_rng(0).normal(size=(1100, 6))
            np.savetxt(folder / name[:6] / f"{name}.txt", points, fmt="%.4f", delimiter=",")


@kind
def lora_texts(folder: Path) -> None:
    """Numbers of GPT-2's tokens, and its medium model with fresh weights."""
    import torch
    import transformers

    folder.mkdir(parents=True)
    chosen = np.random.default_rng(0)
    for part, count in (("train", 256), ("valid", 64)):
        rows = [
            {name: chosen.integers(0, 50257, 40).tolist() for name in ("context", "completion")}
            for _ in range(count)
        ]
        (folder / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = transformers.GPT2Config(n_embd=1024, n_layer=24, n_head=16)
    model = transformers.GPT2Model(config)
    torch.save(model.state_dict(), folder / "gpt2-medium.bin")


@kind
def celeba(folder: Path) -> None:
    """Faces that are none. The first 2000 are for tests, of which only some are looked at."""
    names = ["Black_Hair", "Blond_Hair", "Brown_Hair", "Male", "Young"]
    rows = [f"{n:06}.jpg " + " ".join("1" if n % k else "-1" for k in (2, 3, 4, 5, 6))
            for n in range(2200)]  # fmt: skip
    for n in range(2200):
        _image(folder / "images" / f"{n:06}.jpg", 178, 218)
    (folder / "list_attr_celeba.txt").write_text("\n".join(["2200", " ".join(names), *rows]))


@kind
def boxes(folder: Path) -> None:
    """Pictures with four boxes each, as YOLO reads them, and the font it draws with."""
    from matplotlib import font_manager

    folder.mkdir(parents=True)
    font = Path(font_manager.findfont("DejaVu Sans"))
    (folder / "Arial.ttf").write_bytes(font.read_bytes())
    for part, count in (("train", 64), ("val", 32)):
        (folder / "labels" / part).mkdir(parents=True)
        for n in range(count):
            _image(folder / "images" / part / f"{n}.jpg", 640, 480)
            lines = [f"{n % 80} {x} 0.5 0.15 0.4" for x in (0.1, 0.3, 0.6, 0.8)]
            (folder / "labels" / part / f"{n}.txt").write_text("\n".join(lines))
    names = "".join(f"  {n}: thing{n}\n" for n in range(80))
    places = f"path: {folder.resolve()}\ntrain: images/train\nval: images/val\n"
    (folder / "made.yaml").write_text(f"{places}names:\n{names}")


@kind
def yolo_weights(file: Path) -> None:
    """yolov5n with fresh weights, which it tries before it turns mixed precision on."""
    import torch

    sys.path.insert(0, str(file.parent))
    from models.yolo import Model

    torch.save({"model": Model(file.parent / "models" / "yolov5n.yaml")}, file)


if __name__ == "__main__":
    KINDS[sys.argv[1]](Path(sys.argv[2]))
