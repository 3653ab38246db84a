"""A small language model, and a circuit of halfulp's units that computes the same tokens.

python -m examples.decoder.train                 # train the model on the text of this folder
python -m examples.decoder.run --policy FILE     # generate with torch and with the circuit, and compare the bits
"""
