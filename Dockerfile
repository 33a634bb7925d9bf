# The server in a container: docs/server.md says how to build and run it.
#
#   docker build -t wfstdec .
#   docker run -p 8000:8000 -v ./data:/data:ro wfstdec
#
# What the server needs lies in /data: model.onnx, tokens.txt, graph.npz. Other flags
# than those of CMD stand behind the image's name.
FROM python:3.12-slim

# Kernels are compiled here, for any x86-64-v3 processor, and never again.
COPY . /src
RUN pip install --no-cache-dir --constraint /src/constraints.txt '/src[server,models,av]'
RUN wfstdec warm-up

# Nobody, without a home: nothing is written while it runs.
USER 65534:65534
WORKDIR /data
EXPOSE 8000
HEALTHCHECK --start-period=60s --interval=10s --timeout=5s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health')"]
ENTRYPOINT ["wfstdec", "serve", "--host", "0.0.0.0"]
CMD ["model.onnx", "--tokens", "tokens.txt", "--graph", "graph.npz"]
