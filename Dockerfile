# Simulations of units: docker build -t halfulp . && docker run halfulp sim "mac e5m2*e5m2+e6m5"
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends g++ make && rm -rf /var/lib/apt/lists/*
COPY . /halfulp
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu "/halfulp[sim]"
ENTRYPOINT ["halfulp"]
