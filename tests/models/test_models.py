"""Models: shapes, seeds, normalisation, and per-sample gradients."""

import itertools

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from fedgr_secure.data.types import ImageSpec
from fedgr_secure.errors import InputError
from fedgr_secure.models import build_model
from fedgr_secure.models.norm import group_count
from fedgr_secure.sections import ModelConfig


def spec(channels, height, width=None, classes=10):
    names = tuple(str(number) for number in range(classes))
    return ImageSpec(channels, height, width or height, names, (0.5,) * channels, (0.5,) * channels, True)


def images(count, spec, seed=0):
    shape = (count, spec.channels, spec.height, spec.width)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def build(model, spec, *, norm="group", seed=0, width=16):
    return build_model(ModelConfig(model=model, norm=norm, width=width), spec, seed)


SHAPES = [
    ("cnn", spec(1, 8), 128),
    ("cnn", spec(1, 28), 128),
    ("cnn", spec(3, 32, classes=100), 128),
    ("cnn", spec(3, 64), 128),
    ("cnn", spec(2, 9, 15), 128),
    ("cnn", spec(1, 4), 128),
    ("mlp", spec(1, 8), 128),
    ("mlp", spec(3, 5, 7), 128),
    ("resnet18", spec(1, 8), 512),
    ("resnet18", spec(3, 32), 512),
    ("resnet34", spec(3, 32, classes=100), 512),
]


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("model, spec, features", SHAPES, ids=lambda value: getattr(value, "height", value))
def test_output_has_a_logit_per_class_and_features_of_the_stated_size(model, spec, features, norm):
    subject = build(model, spec, norm=norm).eval()
    with torch.no_grad():
        output = subject(images(2, spec))
    assert output.logits.shape == (2, spec.classes)
    assert output.features.shape == (2, features)
    torch.testing.assert_close(subject.classifier(output.features), output.logits)


@pytest.mark.parametrize("model", ["cnn", "mlp", "resnet18"])
def test_the_seed_decides_the_weights_and_the_global_state_is_left_alone(model):
    torch.manual_seed(123)
    state = torch.get_rng_state()
    first = build(model, spec(1, 8), seed=5).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(7)
    second, other = (build(model, spec(1, 8), seed=seed).state_dict() for seed in (5, 6))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["classifier.weight"], other["classifier.weight"])


@pytest.mark.parametrize("side, channels, norm", [(224, 3, "batch"), (32, 1, "group")])
def test_resnet50_keeps_the_imagenet_stem(side, channels, norm):
    task = spec(channels, side, classes=14)
    subject = build("resnet50", task, norm=norm).eval()
    with torch.no_grad():
        output = subject(images(1, task))
    assert output.logits.shape == (1, 14) and output.features.shape == (1, 2048)
    assert subject.backbone.conv1.stride == (2, 2) and isinstance(subject.backbone.maxpool, nn.MaxPool2d)


@pytest.mark.parametrize("model", ["cnn", "mlp", "resnet18"])
def test_group_norm_keeps_no_state_and_batch_norm_keeps_statistics_and_a_counter(model):
    group, batch = (build(model, spec(3, 32), norm=norm) for norm in ("group", "batch"))
    assert not list(group.buffers())
    buffers = dict(batch.named_buffers())
    kinds = {name.rsplit(".", 1)[1]: value.dtype for name, value in buffers.items()}
    assert kinds == {"running_mean": torch.float32, "running_var": torch.float32, "num_batches_tracked": torch.int64}
    batch.train()(images(4, spec(3, 32)))
    assert {int(value) for name, value in buffers.items() if name.endswith("num_batches_tracked")} == {1}


def test_weights_have_the_usual_layout_so_that_they_can_be_flattened_and_stored():
    for model in ("cnn", "mlp", "resnet18"):
        assert all(weight.is_contiguous() for weight in build(model, spec(3, 32)).parameters())


@pytest.mark.parametrize("model", ["cnn", "mlp", "resnet18"])
def test_no_relu_works_in_place(model):
    assert not [m for m in build(model, spec(3, 32)).modules() if isinstance(m, nn.ReLU) and m.inplace]


@pytest.mark.parametrize("model, side", [("cnn", 3), ("resnet18", 7), ("resnet34", 7), ("resnet50", 31)])
def test_images_too_small_for_the_model_are_refused(model, side):
    with pytest.raises(InputError, match=f"model: {model} on {side}x40 images, allowed: sides of at least {side + 1}"):
        build(model, spec(1, side, 40))


@pytest.mark.parametrize("channels", range(1, 70))
def test_groups_divide_the_channels_and_are_at_most_32_of_at_least_four(channels):
    groups = group_count(channels)
    assert channels % groups == 0 and 1 <= groups <= 32
    assert groups == 1 or channels // groups >= 4


@pytest.mark.parametrize("width", [1, 3, 16])
def test_the_small_models_take_any_width(width):
    for model in ("cnn", "mlp"):
        assert build(model, spec(1, 8), width=width)(images(2, spec(1, 8))).logits.shape == (2, 10)


def loss_of(model, weights, image, label):
    logits = functional_call(model, weights, (image[None],)).logits
    return nn.functional.cross_entropy(logits, label[None])


@pytest.mark.parametrize("model, spec", [("cnn", spec(1, 8)), ("cnn", spec(3, 13, 12)), ("mlp", spec(1, 8))])
def test_per_sample_gradients_by_vmap_are_those_of_single_backward_passes(model, spec):
    subject, batch, labels = build(model, spec), images(4, spec), torch.tensor([1, 0, 3, 9])
    weights = {name: value.detach() for name, value in subject.named_parameters()}
    per_sample = vmap(grad(lambda w, x, y: loss_of(subject, w, x, y)), in_dims=(None, 0, 0))(weights, batch, labels)
    for row in range(4):
        subject.zero_grad()
        loss = nn.functional.cross_entropy(subject(batch[row : row + 1]).logits, labels[row : row + 1])
        loss.backward()
        for name, weight in subject.named_parameters():
            torch.testing.assert_close(per_sample[name][row], weight.grad, rtol=1e-4, atol=1e-5)


def test_models_with_stacked_weights_train_as_one():
    task = spec(1, 8)
    members = [build("cnn", task, seed=seed) for seed in range(3)]
    stacked = {name: torch.stack([dict(m.named_parameters())[name].detach() for m in members]) for name in
               dict(members[0].named_parameters())}  # fmt: skip
    batches = torch.stack([images(5, task, seed) for seed in range(3)])

    def loss(weights, batch):
        return functional_call(members[0], weights, (batch,)).logits.square().mean()

    gradients = vmap(grad(loss))(stacked, batches)
    for number, member in enumerate(members):
        member(batches[number]).logits.square().mean().backward()
        for name, weight in member.named_parameters():
            torch.testing.assert_close(gradients[name][number], weight.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("model", ["cnn", "mlp"])
def test_a_small_model_learns_a_separable_task(model, norm):
    task = spec(1, 8, classes=2)
    batch = images(64, task)
    labels = (batch[:, 0, :4].mean((1, 2)) > batch[:, 0, 4:].mean((1, 2))).long()
    subject = build(model, task, norm=norm)
    optimiser = torch.optim.SGD(subject.parameters(), lr=0.1, momentum=0.9)
    for _ in range(40):
        optimiser.zero_grad()
        nn.functional.cross_entropy(subject(batch).logits, labels).backward()
        optimiser.step()
    assert (subject(batch).logits.argmax(1) == labels).float().mean() > 0.95


def test_grey_images_and_colour_images_give_the_same_answer_in_either_memory_layout():
    for task in (spec(1, 12), spec(3, 12)):
        subject, batch = build("cnn", task), images(3, task)
        other = batch.contiguous(memory_format=torch.channels_last)
        for ours, theirs in itertools.zip_longest(subject(batch), subject(other)):
            torch.testing.assert_close(ours, theirs)
