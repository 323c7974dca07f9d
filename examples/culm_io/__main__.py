"""``python -m culm_io`` is the command ``culm``."""

from culm_io.command import main

if __name__ == "__main__":
    main()
