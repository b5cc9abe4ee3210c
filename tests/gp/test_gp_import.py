import polyshot.gp


def test_every_public_name_is_there_and_in_order():
    assert all(hasattr(polyshot.gp, name) for name in polyshot.gp.__all__)
    assert len(set(polyshot.gp.__all__)) == len(polyshot.gp.__all__)
