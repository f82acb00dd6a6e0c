"""Views: exact crops, the published operations, and one generator state for one result."""

import itertools

import numpy as np
import pytest
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as published

from fedgr_secure.data import randaugment
from fedgr_secure.data import views as views_module
from fedgr_secure.data.types import ImageSpec
from fedgr_secure.data.views import Views
from fedgr_secure.errors import InputError
from fedgr_secure.sections import ViewConfig

SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 20, 33), (2, 9, 16), (4, 5, 5), (1, 3, 2)]


def spec(shape=(3, 32, 32), *, natural=True, mean=0.0, std=1.0):
    channels, height, width = shape
    return ImageSpec(channels, height, width, ("a", "b"), (mean,) * channels, (std,) * channels, natural)


def views(shape=(3, 32, 32), *, natural=True, **config):
    return Views.for_images(spec(shape, natural=natural), ViewConfig(**config))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(count, shape, seed=0):
    """Smooth random images (noise alone would hide geometry), with values from 0 to 255."""
    channels, height, width = shape
    coarse = torch.rand(count, channels, 3, 3, generator=generator(seed))
    fine = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic")
    fine = fine + 0.1 * torch.rand(fine.shape, generator=generator(seed + 1))
    return (fine.clamp(0, 1) * 255).to(torch.uint8)


def levels(view):
    """Undo the normalisation of a spec with mean 0 and std 1."""
    return (view * 255).round().to(torch.uint8)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_view_has_the_images_shape_and_range(shape):
    images, subject = pictures(40, shape), views(shape)
    for view in (subject.plain(images), subject.weak(images, generator()), subject.strong(images, generator())):
        assert view.dtype == torch.float32 and view.shape == images.shape
        assert torch.isfinite(view).all() and view.min() >= 0 and view.max() <= 1 + 1e-6


@pytest.mark.parametrize("kind", ["weak", "strong"])
def test_one_generator_state_gives_one_result_and_another_seed_another(kind):
    images, make = pictures(50, (3, 32, 32)), getattr(views(), kind)
    assert torch.equal(make(images, generator(3)), make(images, generator(3)))
    assert not torch.equal(make(images, generator(3)), make(images, generator(4)))
    again = generator(3)
    make(images, again)
    assert not torch.equal(make(images, generator(3)), make(images, again)), "the generator must move on"


def test_views_leave_the_images_and_the_global_random_state_alone():
    images = pictures(10, (3, 32, 32))
    kept, state = images.clone(), torch.get_rng_state()
    views().strong(images, generator())
    assert torch.equal(images, kept) and torch.equal(torch.get_rng_state(), state)


def test_chunks_do_not_change_the_result(monkeypatch):
    images, subject = pictures(50, (3, 16, 16)), views((3, 16, 16))
    whole = subject.weak(images, generator()), subject.strong(images, generator())
    monkeypatch.setattr(views_module, "CHUNK_VALUES", 7 * 3 * 16 * 16)
    assert torch.equal(subject.weak(images, generator()), whole[0])
    # vector code may round otherwise at a chunk's end, and posterize may then take the next level
    assert torch.isclose(subject.strong(images, generator()), whole[1], atol=1e-5).float().mean() > 0.999


def test_numpy_images_read_only_or_strided_give_the_same_views_as_torch():
    images, subject = pictures(12, (3, 32, 32)), views()
    channels_last = np.ascontiguousarray(images.numpy().transpose(0, 2, 3, 1))
    channels_last.flags.writeable = False
    array = channels_last.transpose(0, 3, 1, 2)
    assert torch.equal(subject.strong(array, generator()), subject.strong(images, generator()))
    assert torch.equal(subject.plain(channels_last.transpose(0, 3, 1, 2)), subject.plain(images))


def test_no_images_give_no_views():
    assert views().strong(torch.empty(0, 3, 32, 32, dtype=torch.uint8), generator()).shape == (0, 3, 32, 32)


def test_normalisation_is_per_channel():
    statistics = ImageSpec(3, 4, 4, ("a",), mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3), natural=True)
    images = torch.full((1, 3, 4, 4), 51, dtype=torch.uint8)  # 51 / 255 = 0.2
    view = Views.for_images(statistics, ViewConfig()).plain(images)
    # (0.2 - 0.5) / 0.1 = -3;  (0.2 - 0.4) / 0.2 = -1;  (0.2 - 0.3) / 0.3 = -1/3
    torch.testing.assert_close(view[0, :, 0, 0], torch.tensor([-3.0, -1.0, -1 / 3]))


def crops(image, padding, *, flips):
    """Every weak view of one image, by NumPy's reflect padding."""
    padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)), mode="reflect")
    height, width = image.shape[1:]
    for top, left in itertools.product(range(2 * padding + 1), repeat=2):
        crop = padded[:, top : top + height, left : left + width]
        for flip in flips:
            yield (top, left, flip), crop[:, :, ::-1] if flip else crop


@pytest.mark.parametrize("shape, natural", [((1, 8, 8), False), ((3, 9, 20), True), ((3, 16, 16), True)])
def test_a_weak_view_is_exactly_a_crop_of_the_padded_image_perhaps_mirrored(shape, natural):
    images = pictures(150, shape)
    seen = levels(views(shape, natural=natural).weak(images, generator())).numpy()
    padding = min(shape[1:]) // 8
    places = set()
    for image, view in zip(images.numpy(), seen, strict=True):
        found = [at for at, crop in crops(image, padding, flips=(False, True)) if np.array_equal(crop, view)]
        assert len(found) == 1
        places.update(found)
    flips = {flip for _, _, flip in places}
    assert flips == ({False, True} if natural else {False})
    # 150 images and (2p+1)^2 * flips places (9, 18 and 50): each is missed with probability below (1 - 1/50)^150 = 5 %
    assert len(places) >= 0.8 * (2 * padding + 1) ** 2 * len(flips)


def test_settings_override_the_padding_and_the_flip():
    images = pictures(30, (3, 32, 32))
    assert torch.equal(levels(views(crop_padding=0, flip=False).weak(images, generator())), images)
    flipped = levels(views(crop_padding=0, natural=False, flip=True).weak(images, generator()))
    mirrored = (flipped == images.flip(3)).flatten(1).all(1)
    assert 5 <= mirrored.sum() <= 25
    assert torch.equal(flipped[~mirrored], images[~mirrored])


def test_padding_as_large_as_the_image_is_refused():
    with pytest.raises(InputError, match="crop_padding: 8, allowed: from 0 to 7"):
        views((1, 8, 8), crop_padding=8)


@pytest.mark.parametrize("images", [torch.zeros(2, 3, 8, 8), torch.zeros(2, 1, 8, 8, dtype=torch.uint8)])
def test_images_of_another_type_or_shape_are_refused(images):
    with pytest.raises(InputError, match=r"allowed: uint8 \(n, 3, 8, 8\)"):
        views((3, 8, 8)).plain(images)


def test_strong_without_operations_is_weak():
    images, subject = pictures(30, (3, 32, 32)), views(randaugment_ops=0, randaugment_magnitude=0.0, cutout=0.0)
    assert torch.equal(subject.strong(images, generator()), subject.weak(images, generator()))


def test_strong_views_differ_from_image_to_image():
    images = pictures(1, (3, 32, 32)).expand(60, -1, -1, -1).contiguous()
    seen = levels(views(cutout=0.0).strong(images, generator())).flatten(1)
    assert len(torch.unique(seen, dim=0)) == 60


def test_cutout_leaves_one_grey_square_of_bounded_side():
    images = torch.full((400, 1, 20, 28), 250, dtype=torch.uint8)
    erased = views((1, 20, 28), randaugment_ops=0, cutout=0.5).strong(images, generator()) == 0.5
    height, width = erased.any(3).sum(2).flatten(), erased.any(2).sum(2).flatten()
    assert torch.equal(erased.sum((1, 2, 3)), height * width), "the erased pixels form a rectangle"
    assert height.max() == width.max() == 10  # half of the shorter side
    assert height.min() == 0


def test_the_drawn_operations_and_magnitudes_cover_their_ranges():
    plan = randaugment.RandAugment(3, 0.6, 0.5).draw(4000, (3, 32, 32), generator())
    counts = plan.operation.flatten().bincount(minlength=14)
    # 12,000 draws over 14 operations: mean 857, standard deviation 28
    assert counts.min() > 857 - 150 and counts.max() < 857 + 150
    assert plan.magnitude.abs().max() <= 0.6 and plan.magnitude.min() < -0.59 and plan.magnitude.max() > 0.59


# --- each operation against torchvision's, at the same strength ---


def apply_one(name, images, magnitude):
    """One operation on every image through the batched path, rounded to levels."""
    count = len(images)
    plan = randaugment.Plan(
        torch.full((count, 1), randaugment.OPERATIONS.index(name)),
        torch.full((count, 1), float(magnitude)),
        torch.zeros(count, 4, dtype=torch.int64),
    )
    return randaugment.RandAugment(1, 1.0, 0.0).apply(images.float(), plan).round().to(torch.uint8)


def distance(ours, theirs):
    return (ours.int() - theirs.int()).abs().max().item()


PUBLISHED = {
    "brightness": lambda x, m: published.adjust_brightness(x, 1 + 0.9 * m),
    "contrast": lambda x, m: published.adjust_contrast(x, 1 + 0.9 * m),
    "colour": lambda x, m: published.adjust_saturation(x, 1 + 0.9 * m),
    "sharpness": lambda x, m: published.adjust_sharpness(x, 1 + 0.9 * m),
    "posterize": lambda x, m: published.posterize(x, 8 - round(4 * abs(m))),
    "solarize": lambda x, m: published.solarize(x, 256 * (1 - abs(m))) if m else x,  # torchvision refuses 256
    "autocontrast": lambda x, m: published.autocontrast(x),
    "equalize": lambda x, m: published.equalize(x),
    "identity": lambda x, m: x,
}


@pytest.mark.parametrize("shape", [(1, 12, 15), (3, 16, 16)])
@pytest.mark.parametrize("magnitude", [-1.0, -0.35, 0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_photometric_operation_is_the_published_one(name, magnitude, shape):
    images = pictures(9, shape)
    images[0] = 77  # one level only
    images[1] = images[1] // 4 + 90  # a narrow range
    # torchvision truncates its result, hence one level; for colour also the grey value, which counts 0.9 at most
    allowed = 2 if name == "colour" else 1
    assert distance(apply_one(name, images, magnitude), PUBLISHED[name](images, magnitude)) <= allowed


@pytest.mark.parametrize("magnitude", [-1.0, 0.4])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 14, 23)])
def test_rotation_and_translation_are_the_published_ones(shape, magnitude):
    images = pictures(5, shape)
    bilinear = InterpolationMode.BILINEAR
    turned = published.rotate(images, 30 * magnitude, interpolation=bilinear)
    assert distance(apply_one("rotate", images, magnitude), turned) <= 1
    shift = 0.3 * magnitude * shape[2]
    options = {"angle": 0.0, "scale": 1.0, "shear": [0.0, 0.0], "interpolation": bilinear}
    # ours maps output pixels to input pixels, so a positive strength moves the picture left or up
    moved = published.affine(images.float(), translate=[-shift, 0.0], **options).round().to(torch.uint8)
    assert distance(apply_one("translate_x", images, magnitude), moved) <= 1
    moved = published.affine(images.float(), translate=[0.0, -0.3 * magnitude * shape[1]], **options)
    assert distance(apply_one("translate_y", images, magnitude), moved.round().to(torch.uint8)) <= 1


@pytest.mark.parametrize("name, at", [("shear_x", (14, 16)), ("shear_y", (16, 14))])
def test_a_shear_moves_a_point_in_proportion_to_its_distance_from_the_centre(name, at):
    images = torch.zeros(1, 1, 41, 41, dtype=torch.uint8)
    row, column = at
    images[0, 0, row, column] = 240
    seen = apply_one(name, images, 0.5)  # 0.15 pixels per pixel
    # input = output + 0.15 * offset on the sheared axis, so output = input - 0.15 * offset; the centre is pixel 20:
    # an offset of 14 - 20 = -6 moves the point by 0.9, half-way weights 0.9 * 240 = 216 and 0.1 * 240 = 24
    nearest = (row, column + 1) if name == "shear_x" else (row + 1, column)
    assert abs(int(seen[0, 0][nearest]) - 216) <= 1 and abs(int(seen[0, 0][at]) - 24) <= 1


def test_geometric_operations_compose_into_one_map():
    images = pictures(6, (1, 40, 40)).float()
    images[:, :, :12], images[:, :, -12:], images[..., :12], images[..., -12:] = 0, 0, 0, 0
    rotate, move = randaugment.GEOMETRIC.index("rotate"), randaugment.GEOMETRIC.index("translate_x")
    magnitude = torch.tensor([[0.8, 0.5]]).expand(6, -1)  # 24 degrees, then 6 pixels
    together = randaugment.sample(
        images, randaugment.affine_maps(torch.tensor([[rotate, move]]).expand(6, -1), magnitude, 40, 40)
    )
    turned = apply_one("rotate", images, 0.8)
    one_by_one = apply_one("translate_x", turned, 0.5)
    assert distance(together.round().to(torch.uint8), one_by_one) <= 2
