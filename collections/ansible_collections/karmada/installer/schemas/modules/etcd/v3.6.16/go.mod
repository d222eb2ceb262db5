module installer.karmada.io/build

go 1.26.0
require go.etcd.io/etcd/server/v3 v3.6.16
require go.etcd.io/etcd/etcdutl/v3 v3.6.16
