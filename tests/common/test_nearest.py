from tfrobust.common.nearest import nearest


def test_names_are_compared_without_their_case():
    assert nearest("epslon", ["SEED", "EPSILON", "EPOCHS"])[0] == "EPSILON"
    assert nearest("resnet51", ["VGG16", "ResNet50", "ResNet101"], count=1) == ["ResNet50"]
    assert nearest("zzz", {"EPSILON"}) == [] == nearest("EPSILON", [])
