# mypy: disable-error-code="misc,call-arg,no-untyped-call,attr-defined,operator,arg-type,call-overload,union-attr,no-any-return"
# ruff: noqa: E501 (layers side by side)
"""Steps as people's programs make them: loops that ask for values, two optimizers, evaluation in
between, generation, reinforcement learning, sparse gradients.

Predicted without a GPU and committed before any of them was measured.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from accuracy.models import Step, hugging_face, tokens

MODELS: dict[str, Callable[[str], Step]] = {}


def program(build: Callable[[str], Step]) -> Callable[[str], Step]:
    MODELS[build.__name__] = build
    return build


def batches(device: str, count: int, *shape: int) -> Iterator[Tensor]:
    for _ in range(count):
        yield torch.rand(shape).to(device)


class Generator(nn.Module):
    def __init__(self, noise: int = 128, width: int = 96) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.ConvTranspose2d(noise, 8 * width, 4, 1, 0, bias=False)]
        for scale in (8, 4, 2):
            layers += [nn.BatchNorm2d(scale * width), nn.ReLU(True)]
            layers += [nn.ConvTranspose2d(scale * width, scale * width // 2, 4, 2, 1, bias=False)]
        layers += [nn.BatchNorm2d(width), nn.ReLU(True), nn.ConvTranspose2d(width, 3, 4, 2, 1)]
        self.layers = nn.Sequential(*layers, nn.Tanh())

    def forward(self, z: Tensor) -> Tensor:
        return self.layers(z[:, :, None, None])


class Critic(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2, True)]
        for scale in (1, 2, 4):
            layers += [nn.Conv2d(scale * width, 2 * scale * width, 4, 2, 1, bias=False)]
            layers += [nn.InstanceNorm2d(2 * scale * width, affine=True), nn.LeakyReLU(0.2, True)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).flatten(1)


@program
def wgan_with_penalty(device: str) -> Step:
    """Two optimizers, gradients of gradients, a critic that steps more often."""
    make, judge = Generator().to(device), Critic().to(device)
    a = torch.optim.Adam(make.parameters(), lr=1e-4, betas=(0.0, 0.9))
    b = torch.optim.Adam(judge.parameters(), lr=1e-4, betas=(0.0, 0.9))

    def step() -> None:
        for real in batches(device, 2, 48, 3, 64, 64):
            fake = make(torch.randn(48, 128, device=device)).detach()
            mix = torch.rand(48, 1, 1, 1, device=device)
            between = (mix * real + (1 - mix) * fake).requires_grad_()
            (slope,) = torch.autograd.grad(judge(between).sum(), between, create_graph=True)
            penalty = (slope.flatten(1).norm(2, dim=1) - 1).square().mean()
            loss = judge(fake).mean() - judge(real).mean() + 10 * penalty
            if not math.isfinite(loss.item()):
                raise SystemExit("diverged")
            b.zero_grad()
            loss.backward()
            b.step()
        a.zero_grad()
        (-judge(make(torch.randn(48, 128, device=device))).mean()).backward()
        a.step()

    return step


@program
def ppo_with_distributions(device: str) -> Step:
    """A rollout without gradients, then epochs over shuffled minibatches, with checked distributions."""
    torso = nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(),
    ).to(device)  # fmt: skip
    actor, critic = nn.Linear(512, 18).to(device), nn.Linear(512, 1).to(device)
    parameters = [*torso.parameters(), *actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=2.5e-4, eps=1e-5)

    def step() -> None:
        seen = torch.randint(0, 255, (128, 16, 4, 84, 84), device=device, dtype=torch.uint8)
        acts, logs = [], []
        with torch.no_grad():
            for frame in seen:
                policy = torch.distributions.Categorical(logits=actor(torso(frame / 255.0)))
                act = policy.sample()
                acts.append(act)
                logs.append(policy.log_prob(act))
        frames, act, log = seen.flatten(0, 1), torch.cat(acts), torch.cat(logs)
        gain = torch.randn(len(frames), device=device)
        for chosen in torch.randperm(len(frames), device=device).split(512):
            hidden = torso(frames[chosen] / 255.0)
            policy = torch.distributions.Categorical(logits=actor(hidden))
            ratio = (policy.log_prob(act[chosen]) - log[chosen]).exp()
            clipped = ratio.clamp(0.8, 1.2)
            loss = torch.max(-gain[chosen] * ratio, -gain[chosen] * clipped).mean()
            loss = loss - 0.01 * policy.entropy().mean() + critic(hidden).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 0.5, error_if_nonfinite=True)
            optimizer.step()
            if (log[chosen] - policy.log_prob(act[chosen])).mean().item() > 1e9:
                break

    return step


@program
def gpt2_greedy_then_train(device: str) -> Step:
    """Samples from the model between steps, as language models' training loops do."""
    import transformers

    config = transformers.GPT2Config(n_layer=8, n_embd=640, n_head=10, vocab_size=32000)
    net = hugging_face("GPT2LMHeadModel", config).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    data = tokens(32000, 6, 768, device)

    def step() -> None:
        net.train()
        with torch.autocast("cuda", torch.bfloat16):
            loss = net(**data).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        net.eval()
        with torch.no_grad():
            net.generate(data["input_ids"][:4, :96], max_new_tokens=40, do_sample=True, top_k=50,
                         pad_token_id=0, eos_token_id=1)  # fmt: skip

    return step


@program
def t5_beams(device: str) -> Step:
    """Beam search of an encoder and a decoder, which runs to its full length."""
    import transformers

    config = transformers.T5Config(num_layers=6, d_model=512, d_ff=1536, decoder_start_token_id=0)
    net = hugging_face("T5ForConditionalGeneration", config, torch.bfloat16).to(device).eval()
    ids = torch.randint(2, 32000, (8, 300), device=device)

    def step() -> None:
        with torch.inference_mode():
            net.generate(ids, num_beams=4, min_new_tokens=48, max_new_tokens=48)

    return step


@program
def recommender_sparse(device: str) -> Step:
    """Bags of a large table with sparse gradients, beside a dense tower."""
    table = nn.EmbeddingBag(800_000, 64, sparse=True, mode="sum").to(device)
    tower = nn.Sequential(nn.Linear(64 + 13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)  # fmt: skip
    a = torch.optim.SparseAdam(table.parameters(), lr=1e-3)
    b = torch.optim.Adagrad(tower.parameters(), lr=1e-2)

    def step() -> None:
        ids = torch.randint(0, 800_000, (8192, 26), device=device)
        dense, clicked = torch.rand(8192, 13, device=device), torch.rand(8192, device=device)
        score = tower(torch.cat([table(ids), dense], 1)).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(score, (clicked > 0.5).float())
        loss.backward()
        for optimizer in (a, b):
            optimizer.step()
            optimizer.zero_grad()

    return step


@program
def packed_lstm_tagger(device: str) -> Step:
    """Sentences of different lengths, packed."""
    words = nn.Embedding(30_000, 256).to(device)
    lstm = nn.LSTM(256, 384, 2, batch_first=True, bidirectional=True, dropout=0.3).to(device)
    head = nn.Linear(768, 40).to(device)
    parameters = [*words.parameters(), *lstm.parameters(), *head.parameters()]
    optimizer = torch.optim.RMSprop(parameters, lr=1e-3)
    lengths = torch.arange(96, 96 - 64, -1)

    def step() -> None:
        ids = torch.randint(0, 30_000, (64, 96), device=device)
        packed = nn.utils.rnn.pack_padded_sequence(words(ids), lengths, batch_first=True)
        out, _ = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
        loss = F.cross_entropy(head(out).flatten(0, 1), ids.flatten() % 40)
        loss.backward()
        nn.utils.clip_grad_value_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


@program
def vit_then_evaluation(device: str) -> Step:
    """Evaluation on larger batches than training, which decides the peak."""
    import transformers

    config = transformers.ViTConfig(hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048, num_labels=100)  # fmt: skip
    net = hugging_face("ViTForImageClassification", config).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    best = [math.inf]

    def step() -> None:
        net.train()
        for x in batches(device, 2, 16, 3, 224, 224):
            labels = torch.randint(0, 100, (16,), device=device)
            net(pixel_values=x, labels=labels).loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        net.eval()
        wrong, total = 0, 0.0
        with torch.no_grad():
            for x in batches(device, 2, 384, 3, 224, 224):
                labels = torch.randint(0, 100, (384,), device=device)
                logits = net(pixel_values=x).logits
                wrong += int((logits.argmax(1) != labels).sum())
                total += F.cross_entropy(logits, labels, reduction="sum").item()
        best[0] = min(best[0], total)

    return step


@program
def unet_fp16_scaler(device: str) -> Step:
    """A segmentation network under a gradient scaler, with a Dice loss and an average of weights."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = (3, 48, 96, 192, 384)
            self.down = nn.ModuleList(self.pair(a, b) for a, b in itertools.pairwise(sizes))
            self.up = nn.ModuleList(
                self.pair(a + b, b) for a, b in ((384, 192), (192, 96), (96, 48))
            )
            self.out = nn.Conv2d(48, 2, 1)

        @staticmethod
        def pair(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.GroupNorm(8, outputs), nn.SiLU(),
                nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.GroupNorm(8, outputs), nn.SiLU(),
            )  # fmt: skip

        def forward(self, x: Tensor) -> Tensor:
            kept: list[Tensor] = []
            for block in self.down:
                x = block(x if not kept else F.max_pool2d(x, 2))
                kept.append(x)
            for block, skip in zip(self.up, reversed(kept[:-1]), strict=True):
                x = block(torch.cat([F.interpolate(x, scale_factor=2.0), skip], 1))
            return self.out(x)

    net = Net().to(device, memory_format=torch.channels_last)
    mean = torch.optim.swa_utils.AveragedModel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    scaler = torch.amp.GradScaler("cuda")

    def step() -> None:
        x = torch.rand(8, 3, 192, 256, device=device).contiguous(memory_format=torch.channels_last)
        mask = torch.rand(8, 192, 256, device=device) > 0.5
        with torch.autocast("cuda", torch.float16):
            logits = net(x)
            soft = logits.softmax(1)[:, 1]
            dice = 1 - (2 * (soft * mask).sum() + 1) / (soft.sum() + mask.sum() + 1)
            loss = F.cross_entropy(logits, mask.long()) + dice
        if not torch.isfinite(loss):
            raise SystemExit("diverged")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        mean.update_parameters(net)

    return step


@program
def distilled_bert(device: str) -> Step:
    """A teacher without gradients, accumulation over four parts, two groups of parameters."""
    import transformers

    teacher_config = transformers.BertConfig(hidden_size=768, num_hidden_layers=8)
    student_config = transformers.BertConfig(hidden_size=384, num_hidden_layers=4, num_attention_heads=6, intermediate_size=1536)  # fmt: skip
    teacher = hugging_face("BertForMaskedLM", teacher_config, torch.bfloat16).to(device).eval()
    student = hugging_face("BertForMaskedLM", student_config).to(device)
    plain = [p for p in student.parameters() if p.ndim < 2]
    other = [p for p in student.parameters() if p.ndim >= 2]
    optimizer = torch.optim.NAdam([{"params": plain}, {"params": other, "weight_decay": 0.01}])

    def step() -> None:
        for _ in range(4):
            ids = torch.randint(0, 30_000, (8, 256), device=device)
            mask = (torch.arange(256, device=device) < 200).expand(8, -1).long()
            with torch.no_grad():
                wanted = teacher(input_ids=ids, attention_mask=mask).logits.float()
            with torch.autocast("cuda", torch.bfloat16):
                logits = student(input_ids=ids, attention_mask=mask).logits
            loss = F.kl_div(
                logits.float().log_softmax(-1), wanted.softmax(-1), reduction="batchmean"
            )
            (loss / 4).backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


@program
def byol_two_views(device: str) -> Step:
    """Two views, a target network that follows, channels last, no optimizer state but momentum."""

    def encoder() -> nn.Module:
        layers: list[nn.Module] = [
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
        ]
        for a, b in ((64, 128), (128, 256), (256, 512)):
            layers += [nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
            layers += [
                nn.Conv2d(b, b, 3, 1, 1, groups=b // 32, bias=False),
                nn.BatchNorm2d(b),
                nn.ReLU(),
            ]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 256))

    online = encoder().to(device)
    target = copy.deepcopy(online).requires_grad_(False)
    guess = nn.Sequential(nn.Linear(256, 1024), nn.BatchNorm1d(1024), nn.ReLU(), nn.Linear(1024, 256)).to(device)  # fmt: skip
    optimizer = torch.optim.SGD([*online.parameters(), *guess.parameters()], lr=0.05, momentum=0.9)

    def step() -> None:
        one, two = batches(device, 2, 64, 3, 160, 160)
        with torch.no_grad():
            wanted = [F.normalize(target(view), dim=1) for view in (two, one)]
        found = [F.normalize(guess(online(view)), dim=1) for view in (one, two)]
        loss = sum(2 - 2 * (a * b).sum(1).mean() for a, b in zip(found, wanted, strict=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.lerp_(fast, 0.01)

    return step


@program
def speech_ctc(device: str) -> Step:
    """Spectrograms through convolutions and a recurrent network into CTC."""
    front = nn.Sequential(nn.Conv2d(1, 32, (11, 41), (2, 2), (5, 20)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20)).to(device)  # fmt: skip
    body = nn.GRU(32 * 41, 512, 3, bidirectional=True).to(device)
    head = nn.Linear(1024, 29).to(device)
    parameters = [*front.parameters(), *body.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-4)

    def step() -> None:
        sound = torch.rand(16, 1, 81, 600, device=device)
        seen = front(sound).permute(3, 0, 1, 2).flatten(2)
        logits = head(body(seen)[0]).float().log_softmax(-1)
        targets = torch.randint(1, 29, (16, 60))
        lengths = torch.full((16,), logits.shape[0]), torch.full((16,), 60)
        loss = F.ctc_loss(logits, targets.to(device), *lengths)
        if torch.isnan(loss) or loss.item() == math.inf:
            return
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


@program
def masked_encoder_eval_and_muon(device: str) -> Step:
    """torch's own encoder with padding, trained with an optimizer that is not torch's, then evaluated."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, norm_first=False)
    net = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).to(device)
    memory: dict[nn.Parameter, Tensor] = {}

    @torch.no_grad()
    def update() -> None:
        for p in net.parameters():
            kept = memory.setdefault(p, torch.zeros_like(p))
            kept.mul_(0.95).add_(p.grad)
            change = kept
            if p.ndim == 2:
                x = kept.bfloat16() / (kept.norm() + 1e-7)
                for _ in range(3):
                    a = x @ x.T
                    x = 3.4445 * x + (-4.775 * a + 2.0315 * (a @ a)) @ x
                change = x.to(p.dtype)
            p.sub_(change, alpha=0.02)
            p.grad = None

    def step() -> None:
        x = torch.rand(32, 256, 512, device=device)
        padding = torch.arange(256, device=device).expand(32, -1) >= 230
        net.train()
        net(x, src_key_padding_mask=padding).square().mean().backward()
        update()
        net.eval()
        with torch.no_grad():
            net(torch.rand(96, 256, 512, device=device))

    return step


@program
def guided_sampler(device: str) -> Step:
    """A denoiser trained for one step, then asked eight times, twice at once, without gradients."""

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width, elementwise_affine=False)
            self.attend = nn.MultiheadAttention(width, 8, batch_first=True)
            self.change = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))  # fmt: skip
            self.shift = nn.Linear(width, 4 * width)

        def forward(self, x: Tensor, when: Tensor) -> Tensor:
            a, b, c, d = self.shift(F.silu(when))[:, None].chunk(4, dim=-1)
            y = self.norm(x) * (1 + a)
            x = x + b * self.attend(y, y, y, need_weights=False)[0]
            return x + d * self.change(self.norm(x) * (1 + c))

    class Denoiser(nn.Module):
        def __init__(self, width: int = 512) -> None:
            super().__init__()
            self.cut = nn.Conv2d(4, width, 2, 2)
            self.kinds, self.times = nn.Embedding(101, width), nn.Linear(256, width)
            self.blocks = nn.ModuleList(Block(width) for _ in range(8))
            self.out = nn.Linear(width, 16)

        def forward(self, x: Tensor, time: Tensor, kind: Tensor) -> Tensor:
            waves = torch.exp(-math.log(10000) * torch.arange(128, device=x.device) / 128)
            angles = time[:, None].float() * waves
            when = self.times(torch.cat([angles.cos(), angles.sin()], -1)) + self.kinds(kind)
            tokens = self.cut(x).flatten(2).transpose(1, 2)
            for block in self.blocks:
                tokens = block(tokens, when)
            side = x.shape[-1] // 2
            return F.pixel_shuffle(self.out(tokens).transpose(1, 2).unflatten(2, (side, side)), 2)

    net = Denoiser().to(device)
    mean = copy.deepcopy(net).requires_grad_(False)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.0)

    def step() -> None:
        x, time = torch.randn(24, 4, 32, 32, device=device), torch.randint(0, 1000, (24,), device=device)  # fmt: skip
        kind = torch.randint(0, 101, (24,), device=device)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.mse_loss(net(x, time, kind).float(), torch.randn_like(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(mean.parameters(), net.parameters(), strict=True):
                slow.lerp_(fast, 0.001)
            seen = torch.randn(16, 4, 32, 32, device=device)
            both = torch.cat(
                [torch.arange(16, device=device), torch.full((16,), 100, device=device)]
            )
            for at in torch.linspace(999, 0, 8, device=device):
                told, free = mean(seen.repeat(2, 1, 1, 1), at.expand(32), both).chunk(2)
                seen = seen - (free + 4.0 * (told - free)) / 8
                if not torch.isfinite(seen).all():
                    raise SystemExit("diverged")

    return step


@program
def smoothed_encoder_decoder(device: str) -> Step:
    """torch's own Transformer, sentences of different lengths, smoothed labels, then greedy search."""
    words, width = 16000, 512

    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Embedding(words, width), nn.Embedding(words, width)
            self.body = nn.Transformer(width, 8, 4, 4, 2048, batch_first=True)
            self.head = nn.Linear(width, words, bias=False)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            later = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=source.device)  # fmt: skip
            seen = self.body(self.one(source), self.other(target), tgt_mask=later, tgt_is_causal=True, src_key_padding_mask=source == 0, memory_key_padding_mask=source == 0)  # fmt: skip
            return self.head(seen)

    net = Translator().to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4, betas=(0.9, 0.98), fused=True)
    lengths = [96, 80, 64, 96] * 8

    def step() -> None:
        net.train()
        source = torch.randint(1, words, (32, 96))
        for row, length in zip(source, lengths, strict=True):
            row[length:] = 0
        source = source.to(device)
        target = torch.randint(1, words, (32, 81), device=device)
        logits = net(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0, label_smoothing=0.1)  # fmt: skip
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        net.eval()
        said = torch.ones(32, 1, dtype=torch.long, device=device)
        with torch.no_grad():
            while said.shape[1] < 12:
                following = net(source, said)[:, -1].argmax(-1, keepdim=True)
                said = torch.cat([said, following], 1)
                if (following == 2).all():
                    break

    return step
