module installer.karmada.io/build

go 1.24.10
require github.com/karmada-io/karmada v1.16.0
