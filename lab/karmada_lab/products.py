# SPDX-License-Identifier: Apache-2.0
"""Products that the lab can build or download: for each product its version, its binaries, and where they come from.

One table. Everything that needs to know which binary belongs to which product, which Go package it is built from,
or what its release file is called, reads it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.go_modules import PROJECTS, build_flags

from karmada_lab.errors import LabError


@dataclass(frozen=True)
class Product:
    """A set of binaries that share one version.

    modules: Go modules required at the product's version. packages: binary name -> Go package that is its main.
    optional: binaries that are built only when asked for by name. version_variables: linker variables; `{version}`,
    `{major}`, `{minor}` are filled in. pins: further modules, raised to a version of another product so that common
    dependencies are compiled once. main: source of a main package of ours, where the product's own would pull in
    far more than the lab uses. replaced: module that the product requires -> file in it -> source of ours in its place,
    for the same reason. tags: build constraints.
    """

    name: str
    version: str
    packages: Mapping[str, str]
    modules: tuple[str, ...] = ()
    optional: frozenset[str] = frozenset()
    version_variables: Mapping[str, str] = field(default_factory=dict)
    pins: Mapping[str, str] = field(default_factory=dict)
    main: str = ""
    replaced: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tags: tuple[str, ...] = ()

    @property
    def default_binaries(self) -> tuple[str, ...]:
        """Binaries that the base image set, the clusters and the tests need."""
        return tuple(name for name in self.packages if name not in self.optional)

    def build_flags(self) -> list[str]:
        """The arguments of `go build` that decide what comes out: versions as a release has them, no symbol table."""
        return build_flags(self.version, self.version_variables, self.tags)


KUBERNETES_VERSION = "v1.35.4"
KARMADA_VERSION = "v1.18.2"
ETCD_VERSION = "v3.6.16"
COREDNS_VERSION = "v1.14.7"
LOCAL_PATH_VERSION = "v0.0.30"
METALLB_VERSION = "v0.15.2"
# Of the releases that read annotations of ingress-nginx, the newest whose module is whole: that of v3.7 leaves out a
# package that its go.mod takes from a folder beside it.
TRAEFIK_VERSION = "v3.6.12"
VERSITYGW_VERSION = "v1.8.0"
AGE_VERSION = "v1.3.2"

# Beside what the collection installs:
_KUBERNETES_COMMANDS = ("kubeadm", "kubelet", "kubectl", "kube-scheduler", "kube-proxy")
_KARMADA_PACKAGES = {
    "karmadactl": "cmd/karmadactl",
    "karmada-operator": "operator/cmd/operator",
}

# A server of pod metrics for members. The version is the one that Karmada's own go.mod names, so that most of its
# packages are those of karmada-metrics-adapter, compiled already.
_METRICS_SERVER = {"metrics-server": "sigs.k8s.io/metrics-server/cmd/metrics-server"}

_KARMADA_OPTIONAL = frozenset(
    {
        *_METRICS_SERVER,
        "karmada-agent",
        "karmada-descheduler",
        "karmada-metrics-adapter",
        "karmada-scheduler-estimator",
        "karmada-search",
        "karmada-operator",
    }
)

# The plugins that the Corefile of the lab names, in place of all of CoreDNS's: the others bring in the client
# libraries of three cloud providers, most of the build time.
_COREDNS_MAIN = """package main

import (
\t"github.com/coredns/coredns/coremain"
\t_ "github.com/coredns/coredns/plugin/cache"
\t_ "github.com/coredns/coredns/plugin/errors"
\t_ "github.com/coredns/coredns/plugin/forward"
\t_ "github.com/coredns/coredns/plugin/health"
\t_ "github.com/coredns/coredns/plugin/hosts"
\t_ "github.com/coredns/coredns/plugin/kubernetes"
\t_ "github.com/coredns/coredns/plugin/loadbalance"
\t_ "github.com/coredns/coredns/plugin/log"
\t_ "github.com/coredns/coredns/plugin/loop"
\t_ "github.com/coredns/coredns/plugin/metrics"
\t_ "github.com/coredns/coredns/plugin/ready"
\t_ "github.com/coredns/coredns/plugin/reload"
\t_ "github.com/coredns/coredns/plugin/template"
)

func main() { coremain.Run() }
"""

# versitygw over a folder. Its own program also has clients of four other stores and of its tests: half as much again.
_VERSITYGW_MAIN = """package main

import (
\t"context"
\t"flag"
\t"log"

\t"github.com/versity/versitygw/backend/meta"
\t"github.com/versity/versitygw/backend/posix"
\t"github.com/versity/versitygw/embedgw"
)

func main() {
\tgateway := embedgw.Config{MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 10000}
\tvar port, versions string
\tflag.StringVar(&gateway.RootUserAccess, "access", "", "access key of the account")
\tflag.StringVar(&gateway.RootUserSecret, "secret", "", "secret of the account")
\tflag.StringVar(&gateway.Region, "region", "", "region")
\tflag.StringVar(&port, "port", "", "address and port to listen on")
\tflag.StringVar(&gateway.CertFile, "cert", "", "certificate")
\tflag.StringVar(&gateway.KeyFile, "key", "", "key of the certificate")
\tflag.StringVar(&versions, "versioning-dir", "", "folder for old versions of objects")
\tflag.Parse()
\tgateway.Ports = []string{port}
\tstore, err := posix.New(flag.Arg(0), meta.XattrMeta{}, posix.PosixOpts{VersioningDir: versions, Concurrency: 100})
\tif err != nil {
\t\tlog.Fatal(err)
\t}
\tlog.Fatal(embedgw.RunVersityGW(context.Background(), store, &gateway))
}
"""

# The process that holds a pod's namespaces: sleeps, reaps, goes on SIGTERM.
_PAUSE_MAIN = """package main

import (
\t"os"
\t"os/signal"
\t"syscall"
)

func main() {
\tsignals := make(chan os.Signal, 16)
\tsignal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
\tfor received := range signals {
\t\tif received != syscall.SIGCHLD {
\t\t\treturn
\t\t}
\t\tfor {
\t\t\tif pid, _ := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 {
\t\t\t\tbreak
\t\t\t}
\t\t}
\t}
}
"""

# In the place of the client libraries of some 180 providers of DNS, which Traefik has for certificates of ACME.
_WITHOUT_DNS_PROVIDERS = """package dns

import (
\t"fmt"

\t"github.com/go-acme/lego/v4/challenge"
)

func NewDNSChallengeProviderByName(name string) (challenge.Provider, error) {
\treturn nil, fmt.Errorf("built without the DNS provider %s", name)
}
"""


def staging_version(kubernetes: str) -> str:
    """The version under which Kubernetes v1.X.Y publishes its staging modules (k8s.io/api and so on): v0.X.Y."""
    if not kubernetes.startswith("v1."):
        raise LabError(f"Kubernetes version {kubernetes!r} is not of the form v1.X.Y")
    return "v0" + kubernetes[len("v1") :]


def catalogue(
    karmada: str = KARMADA_VERSION, kubernetes: str = KUBERNETES_VERSION, etcd: str = ETCD_VERSION
) -> dict[str, Product]:
    """All products at the given versions, by name."""
    client = staging_version(kubernetes)
    products = [
        Product(
            name="kubernetes",
            version=kubernetes,
            modules=PROJECTS["kubernetes"].modules,
            packages={
                **PROJECTS["kubernetes"].packages,
                **{name: f"k8s.io/kubernetes/cmd/{name}" for name in _KUBERNETES_COMMANDS},
            },
            version_variables=PROJECTS["kubernetes"].version_variables,
        ),
        Product(
            name="etcd",
            version=etcd,
            modules=(*PROJECTS["etcd"].modules, "go.etcd.io/etcd/etcdctl/v3"),
            packages={**PROJECTS["etcd"].packages, "etcdctl": "go.etcd.io/etcd/etcdctl/v3"},
        ),
        Product(
            name="karmada",
            version=karmada,
            modules=PROJECTS["karmada"].modules,
            packages={
                **PROJECTS["karmada"].packages,
                **{name: f"github.com/karmada-io/karmada/{path}" for name, path in _KARMADA_PACKAGES.items()},
                **_METRICS_SERVER,
            },
            optional=_KARMADA_OPTIONAL,
            version_variables=PROJECTS["karmada"].version_variables,
            tags=PROJECTS["karmada"].tags,
        ),
        Product(
            name="coredns",
            version=COREDNS_VERSION,
            modules=("github.com/coredns/coredns",),
            packages={"coredns": "./"},
            main=_COREDNS_MAIN,
        ),
        Product(
            name="local-path-provisioner",
            version=LOCAL_PATH_VERSION,
            modules=("github.com/rancher/local-path-provisioner",),
            packages={"local-path-provisioner": "github.com/rancher/local-path-provisioner"},
            version_variables={"main.VERSION": "{version}"},
            pins={"k8s.io/client-go": client, "k8s.io/api": client, "k8s.io/apimachinery": client},
        ),
        Product(name="pause", version="v1.0.0", packages={"pause": "./"}, main=_PAUSE_MAIN),
        Product(
            name="metallb",
            version=METALLB_VERSION,
            modules=("go.universe.tf/metallb",),
            packages={
                "metallb-controller": "go.universe.tf/metallb/controller",
                "metallb-speaker": "go.universe.tf/metallb/speaker",
            },
            optional=frozenset({"metallb-controller", "metallb-speaker"}),
        ),
        Product(
            name="traefik",
            version=TRAEFIK_VERSION,
            modules=("github.com/traefik/traefik/v3",),
            packages={"traefik": "github.com/traefik/traefik/v3/cmd/traefik"},
            optional=frozenset({"traefik"}),
            version_variables={"github.com/traefik/traefik/v3/pkg/version.Version": "{version}"},
            replaced={"github.com/go-acme/lego/v4": {"providers/dns/zz_gen_dns_providers.go": _WITHOUT_DNS_PROVIDERS}},
        ),
        # A server of S3 that keeps buckets in a folder, and the program that others encrypt and decrypt with.
        Product(
            name="versitygw",
            version=VERSITYGW_VERSION,
            modules=("github.com/versity/versitygw",),
            packages={"versitygw": "./"},
            main=_VERSITYGW_MAIN,
            optional=frozenset({"versitygw"}),
        ),
        Product(
            name="age",
            version=AGE_VERSION,
            modules=("filippo.io/age",),
            packages={"age": "filippo.io/age/cmd/age"},
            optional=frozenset({"age"}),
        ),
    ]
    return {product.name: product for product in products}


def product_of(binary: str, products: Mapping[str, Product]) -> Product:
    """The product that has this binary. Raises LabError with the known names when there is none."""
    for product in products.values():
        if binary in product.packages:
            return product
    known = sorted(name for product in products.values() for name in product.packages)
    raise LabError(f"no binary is called {binary!r}; known: {', '.join(known)}")
