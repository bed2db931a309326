# crowdshot on a CPU: docker build -t crowdshot . && docker run --rm -v "$PWD:/work" crowdshot aggregate labels.csv
# Pin the base image: docker build --build-arg PYTHON_IMAGE=python:3.11-slim@sha256:... -t crowdshot .
ARG PYTHON_IMAGE=python:3.11-slim
FROM $PYTHON_IMAGE AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM $PYTHON_IMAGE
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /dist /dist
# fonts: `crowdshot train glyphs` draws its characters with them
RUN apt-get update && apt-get install --yes --no-install-recommends fonts-dejavu-core && rm -rf /var/lib/apt/lists/* \
 && pip install --no-cache-dir --constraint /tmp/constraints.txt "$(ls /dist/*.whl)[images,texts,serve,plots]" \
 && useradd --create-home crowdshot
USER crowdshot
WORKDIR /work
ENTRYPOINT ["crowdshot"]
CMD ["--help"]
