"""The Ed25519 of verify.py: the vectors of RFC 8032, signatures of another implementation, and forgeries."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dashboard.packs.verify import BASE, ORDER, P, is_signed, plus, point_of, same, times

pytestmark = pytest.mark.invariant("I26")

# RFC 8032, section 7.1: secret key, public key, message, signature.
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
        "387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
        "4a7c15e9716ed28dc027beceea1ec40a",
    ),
    (
        "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
        "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e030"
        "3dca179c138ac17ad9bef1177331a704",
    ),
]


@pytest.mark.parametrize(("seed", "public", "message", "signature"), VECTORS)
def test_the_vectors_of_the_rfc_verify_and_one_bit_less_does_not(
    seed: str, public: str, message: str, signature: str
) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed))
    raw, text, signed = (bytes.fromhex(part) for part in (public, message, signature))
    assert key.public_key().public_bytes_raw() == raw
    assert key.sign(text) == signed
    assert is_signed(raw, text, signed)
    assert not is_signed(raw, text + b"x", signed)
    assert not is_signed(raw, text, bytes([signed[0] ^ 1]) + signed[1:])
    assert not is_signed(raw, text, signed[:40] + bytes([signed[40] ^ 1]) + signed[41:])
    assert not is_signed(bytes([raw[0] ^ 1]) + raw[1:], text, signed)


def test_it_agrees_with_another_implementation_on_texts_of_many_lengths() -> None:
    for number in range(12):
        key = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
        text = b"head" * number * 7
        assert is_signed(key.public_key().public_bytes_raw(), text, key.sign(text))


def test_a_second_signature_made_from_the_first_is_refused() -> None:
    """S + L says the same to a careless verifier: a signature has one encoding."""
    _, public, message, signature = VECTORS[1]
    signed = bytes.fromhex(signature)
    s = int.from_bytes(signed[32:], "little")
    again = signed[:32] + (s + ORDER).to_bytes(32, "little")
    r, k_a = point_of(signed[:32]), times(s, BASE)
    assert r is not None
    assert same(times(s + ORDER, BASE), k_a), "the control: the equation itself can't tell them apart"
    assert not is_signed(bytes.fromhex(public), bytes.fromhex(message), again)


SMALL = [
    bytes(32),  # order 4
    (1).to_bytes(32, "little"),  # the neutral point
    (P - 1).to_bytes(32, "little"),  # order 2
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),  # order 8
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),  # order 8
]


@pytest.mark.parametrize("small", SMALL, ids=["order 4", "neutral", "order 2", "order 8", "order 8 too"])
def test_a_key_of_small_order_signs_nothing(small: bytes) -> None:
    """Under such a key R = [S]B fits any message for which the hash suits it, with no secret at all."""
    point = point_of(small)
    assert point is not None
    assert same(times(8, point), (0, 1, 1, 0))
    forged = [small + bytes(32)]
    for s in range(1, 9):
        r = times(s, BASE)
        x, y = (r[0] * pow(r[2], P - 2, P) % P, r[1] * pow(r[2], P - 2, P) % P)
        forged.append((y | (x & 1) << 255).to_bytes(32, "little") + s.to_bytes(32, "little"))
    assert not any(is_signed(small, bytes([n]), one) for one in forged for n in range(16))


def test_a_point_has_one_encoding_and_lengths_are_exact() -> None:
    public, message, signature = (bytes.fromhex(part) for part in VECTORS[0][1:])
    assert point_of((P + 1).to_bytes(32, "little")) is None
    assert point_of((1 | 1 << 255).to_bytes(32, "little")) is None  # x = 0 with a sign
    assert point_of((2).to_bytes(32, "little")) is None  # not on the curve
    assert not is_signed(public[:31], message, signature)
    assert not is_signed(public, message, signature[:63])
    assert not is_signed(public, message, signature + b"\x00")
    assert same(plus(BASE, (0, 1, 1, 0)), BASE)
    assert same(times(ORDER, BASE), (0, 1, 1, 0))
