"""The stand-in for a browser decrypts the example of the RFC, so that it proves something about ours."""

from cryptography.hazmat.primitives.asymmetric import ec

from tests.notifications.push_service import opened, unb64


def test_the_example_of_rfc_8291_is_decrypted():
    private = int.from_bytes(unb64("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"))
    body = unb64(
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIg"
        "Dll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )
    key = ec.derive_private_key(private, ec.SECP256R1())
    plain = opened(body, key, unb64("BTBZMqHH6r4Tts7J_aSIgg"))

    assert plain == b"When I grow up, I want to be a watermelon"
