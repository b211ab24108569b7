"""Operations and tools shared by the whole package: tensor operations, files, hashes and checks of SavedModels."""
