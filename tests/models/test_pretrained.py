"""ImageNet weights are read from disk, strictly."""

import pytest
import torch
from torchvision.models import resnet50

from fedgr_secure.data.types import ImageSpec
from fedgr_secure.errors import InputError
from fedgr_secure.models import build_model
from fedgr_secure.models.resnet import load_backbone
from fedgr_secure.sections import ModelConfig

COLOUR = ImageSpec(3, 64, 64, ("shirt", "hat"), (0.5,) * 3, (0.5,) * 3, True)
GREY = ImageSpec(1, 64, 64, ("shirt", "hat"), (0.5,), (0.5,), True)


@pytest.fixture(scope="module")
def backbone():
    return resnet50(num_classes=1)


@pytest.fixture(scope="module")
def imagenet(backbone):
    """What torchvision's file holds: names, shapes and a 1000-class head; the values are random."""
    return {**backbone.state_dict(), "fc.weight": torch.zeros(1000, 2048), "fc.bias": torch.zeros(1000)}


@pytest.fixture(scope="module")
def weights(imagenet, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "resnet50.pth"
    torch.save(imagenet, path)
    return path


def build(path, spec=COLOUR, norm="batch", model="resnet50"):
    return build_model(ModelConfig(model=model, norm=norm, pretrained=path), spec, seed=0)


def test_every_tensor_but_the_classifiers_is_loaded(weights, imagenet):
    model = build(weights)
    loaded = model.backbone.state_dict()
    expected = {name: value for name, value in imagenet.items() if not name.startswith("fc.")}
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)
    assert model.classifier.weight.shape == (2, 2048)


def test_a_missing_file_is_named(tmp_path, backbone):
    with pytest.raises(InputError, match=r"pretrained: .*absent\.pth does not exist"):
        load_backbone(backbone, tmp_path / "absent.pth")


@pytest.mark.parametrize("content", [b"", b"not weights", b"PK\x03\x04 truncated"])
def test_a_damaged_file_is_named(tmp_path, backbone, content):
    path = tmp_path / "damaged.pth"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"damaged\.pth cannot be read as torch weights"):
        load_backbone(backbone, path)


class Exploit:
    """A pickle that would run code."""

    def __reduce__(self):
        return (print, ("code ran",))


def test_a_file_that_would_run_code_is_refused(tmp_path, backbone, capsys):
    path = tmp_path / "exploit.pth"
    torch.save({"conv1.weight": Exploit()}, path)
    with pytest.raises(InputError, match="cannot be read as torch weights"):
        load_backbone(backbone, path)
    assert "code ran" not in capsys.readouterr().out


def test_torchs_advice_to_its_own_callers_is_left_out(tmp_path, backbone):
    """It advises weights_only=False, which would run the code."""
    path = tmp_path / "exploit.pth"
    torch.save({"conv1.weight": Exploit()}, path)
    with pytest.raises(InputError) as error:
        load_backbone(backbone, path)
    assert "weights_only" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "damage, name",
    [
        (lambda state: state.pop("layer3.2.conv1.weight"), "layer3.2.conv1.weight"),
        (lambda state: state.update({"extra.weight": torch.zeros(1)}), "extra.weight"),
        (lambda state: state.update({"conv1.weight": torch.zeros(64, 3, 3, 3)}), "conv1.weight"),
        (lambda state: state.update({"bn1.bias": "text"}), "bn1.bias"),
    ],
)
def test_wrong_names_and_shapes_are_named(tmp_path, backbone, imagenet, damage, name):
    state = {key: torch.zeros(()).expand(value.shape) for key, value in imagenet.items()}  # a small file
    damage(state)
    path = tmp_path / "other.pth"
    torch.save(state, path)
    with pytest.raises(
        InputError, match=rf"other\.pth does not fit a ResNet-50; 1 tensors differ, the first is .*{name}"
    ):
        load_backbone(backbone, path)


def test_a_file_that_holds_no_state_dict_is_refused(tmp_path, backbone):
    path = tmp_path / "list.pth"
    torch.save([torch.zeros(1)], path)
    with pytest.raises(InputError, match="holds a list, allowed: a state dict"):
        load_backbone(backbone, path)


def test_pretrained_weights_need_batch_norm_three_channels_and_a_resnet50(weights):
    with pytest.raises(InputError, match="norm: group, allowed: batch with pretrained weights"):
        build(weights, norm="group")
    with pytest.raises(InputError, match="allowed: for 3 channels, not 1"):
        build(weights, spec=GREY)
    with pytest.raises(InputError, match="only with model resnet50, not resnet18"):
        build(weights, model="resnet18")
