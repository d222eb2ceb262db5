module installer.karmada.io/build

go 1.25.10
require github.com/karmada-io/karmada v1.18.1
