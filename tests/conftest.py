"""What every test runs in."""

import signal

# A runner that puts the tests in the background has them ignore Ctrl-C, and what they start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
