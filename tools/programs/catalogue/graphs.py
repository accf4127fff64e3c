# ruff: noqa: E501 (commands in one line)
"""Graphs, and what is recommended to whom."""

from __future__ import annotations

from programs.catalogue.program import Program

_GRAPHS = "pyg-team/pytorch_geometric"

GRAPHS = [
    Program(
        "pyg_gcn",
        "pyg-team/pytorch_geometric",
        "examples",
        "gcn.py",
        {"../data/Planetoid/Cora/raw": "planetoid"},
    ),
    Program(
        "pyg_gat",
        "pyg-team/pytorch_geometric",
        "examples",
        "gat.py",
        {"../data/Planetoid/Cora/raw": "planetoid"},
    ),
    Program("pygcn", "tkipf/pygcn", "pygcn", "train.py", {"../data/cora": "cora"}, (".",)),
    Program(
        "dlrm",
        "facebookresearch/dlrm",
        ".",
        "dlrm_s_pytorch.py -- --use-gpu --mini-batch-size=2048 --arch-embedding-size=100000-200000-1000000 --arch-sparse-feature-size=64 --arch-mlp-bot=13-512-256-64 --arch-mlp-top=512-256-1 --data-generation=random --num-batches=20",
    ),
    Program(
        "pyg_gcn2", _GRAPHS, "examples", "gcn2_cora.py", {"../data/Cora/Cora/raw": "planetoid"}
    ),
    Program(
        "pyg_infomax",
        _GRAPHS,
        "examples",
        "infomax_transductive.py",
        {"../data/Cora/Cora/raw": "planetoid"},
    ),
    Program(
        "pyg_link_prediction",
        _GRAPHS,
        "examples",
        "link_pred.py",
        {"../data/Planetoid/Cora/raw": "planetoid"},
    ),
    Program(
        "pyg_autoencoder",
        _GRAPHS,
        "examples",
        "autoencoder.py",
        {"../data/Planetoid/Cora/raw": "planetoid"},
    ),
    Program("pyg_tagcn", _GRAPHS, "examples", "tagcn.py", {"../data/Cora/Cora/raw": "planetoid"}),
    Program("pygat", "Diego999/pyGAT", ".", "train.py", {"data/cora": "cora"}),
    Program(
        "pygat_sparse",
        "Diego999/pyGAT",
        ".",
        "--values nonzero=0.002 train.py -- --sparse",  # the share of pairs that are edges
        {"data/cora": "cora"},
    ),
    Program("lightgcn", "gusye1234/LightGCN-PyTorch", "code", "main.py -- --dataset lastfm"),
]
