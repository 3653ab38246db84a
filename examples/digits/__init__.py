"""A small convolutional network for digits of 8 x 8 pixels, and a circuit that computes its scores.

python -m examples.digits.run     # train the network, and compare the scores of images bit for bit
"""
